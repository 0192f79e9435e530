"""The protocol between the clients and the server as a suite describes it: secure aggregation, dropouts, and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from fedguard.contracts.specs import Spec

#: The steps of a session, in order; a client that drops out at a step sends neither its message nor a later one
Step = Literal["advertise_keys", "share_keys", "masked_input", "consistency", "unmask"]

#: A client that drops out at one of these steps has no update in any sum
BEFORE_THE_INPUT: tuple[Step, ...] = ("advertise_keys", "share_keys", "masked_input")

_STRICT: dict[str, str] = {"extra": "forbid"}


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Clients that drop out, each independently in each round, honest and malicious ones alike.

    Args:
        rate: probability of each client.
        at: the first message that it does not send.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    rate: Annotated[float, Ge(0), Lt(1)] = 0.0
    at: Step = "masked_input"


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """The encoding of real vectors as ring vectors; see `fedguard.secagg.encoding`.

    Args:
        bits: bits of one client's coordinate, including its sign.
        clip: largest absolute value of a coordinate that an honest client sends.
        rotate: whether a random rotation is applied first, so that no coordinate is much larger than the others.
        ring: bits of a ring element.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    bits: Annotated[int, Ge(2)] = 20
    clip: Annotated[float, Gt(0)] = 4.0
    rotate: bool = False
    ring: Literal[32, 64] = 32


@dataclass(frozen=True)
class SessionSize:
    """Number of clients in a session.

    Attributes:
        expected: number of clients; of the smallest group if there are several.
        most: largest possible number of clients.
        colluders: A, the clients of a round that may collude with the server; all of them may be in one group.
        honest: expected number of clients that stay and are neither colluding nor malicious. They are sure to add their noise.
        malicious: clients of a round that attack the training; all of them may be in one group. They need not be among the
            colluders.
    """

    expected: int
    most: int
    colluders: int
    honest: int
    malicious: int = 0

    @property
    def colluding(self) -> float:
        """The share of its clients that may collude without breaking it."""
        return min(self.colluders / self.expected, 1 - 1e-9) if self.expected else 0.0

    @property
    def fewest(self) -> int:
        """Fewest clients with which it is opened: two honest ones hide each other, and of two each would know the other."""
        return max(3, self.colluders + 2)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The protocol between the clients and the server.

    Args:
        secure_aggregation: the secure aggregation mode, which decides what the server sees. Its parameters are given under its
            name, as in ``{group_testing: {tests: 8}}``; or, if one of them has the name of the mode, beside that one, as in
            ``{groups: 6, redraw: false}``.
        colluding: fraction of a round's clients that may collude with the server without breaking the masks.
        dropout: which clients drop out during a session.
        encoding: fixed-point encoding of the updates under masks.
        norm_bound: largest norm of an update, enforced on malicious clients too, as if each client proved it; null for no
            proofs.
        privacy: the noise of differential privacy.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {**_STRICT, "allow_inf_nan": False}

    secure_aggregation: Spec = "none"
    colluding: Annotated[float, Ge(0), Lt(1)] = 0.1
    dropout: Dropout = field(default_factory=Dropout)
    encoding: FixedPoint = field(default_factory=FixedPoint)
    norm_bound: Annotated[float, Gt(0)] | None = None
    privacy: Spec = "none"

    def colluders(self, n: int) -> int:
        """A, the number of n clients that may collude with the server."""
        return math.floor(self.colluding * n + 1e-9)
