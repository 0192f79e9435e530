"""What stands between the clients and the server: secure aggregation, clients that fall silent, and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Lt
from pydantic import Discriminator, Tag

from fedguard.contracts.noise import ClientNoise, DistributedNoise, RecordNoise
from fedguard.errors import require

#: The steps of a session, in their order; one who is silent from a step on sends neither its message nor a later one.
Step = Literal["advertise_keys", "share_keys", "masked_input", "consistency", "unmask"]

#: From these steps on a client's update reaches nobody.
BEFORE_THE_INPUT: tuple[Step, ...] = ("advertise_keys", "share_keys", "masked_input")

_STRICT: dict[str, str] = {"extra": "forbid"}


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The clients of a round are dealt into groups, and the server sees the sum of each.

    Args:
        groups: G, their number; sizes differ by one at most.
        redraw: whether they are dealt anew in each round; otherwise once, which takes all clients in each round.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    groups: Annotated[int, Ge(2)]
    redraw: bool = True


@dataclass(frozen=True, kw_only=True)
class GroupTesting:
    """In one round the server scores overlapping groups, and from then on leaves out whom it takes to be malicious.

    Args:
        tests: T, the number of overlapping groups.
        memberships: in how many of them each client is.
        round: the round (from 1) in which the clients are tested.
        margin: a group is suspected whose step gains less than this share of the best group's, on the server's clean data.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    tests: Annotated[int, Ge(2), Lt(15)] = 10
    memberships: Annotated[int, Ge(1)] = 2
    round: Annotated[int, Ge(1)] = 1
    margin: Annotated[float, Gt(0), Lt(1)] = 0.6


@dataclass(frozen=True, kw_only=True)
class GroupTested:
    """The key under which group testing stands in a suite.

    Args:
        group_testing: how it is done.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    group_testing: GroupTesting


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Clients that fall silent, each by the toss of a coin in each round, honest and malicious ones alike.

    Args:
        rate: the chance of each.
        at: the first message that it does not send.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    rate: Annotated[float, Ge(0), Lt(1)] = 0.0
    at: Step = "masked_input"


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """How real vectors are written as ring vectors; see `fedguard.secagg.encoding`.

    Args:
        bits: of one client's coordinate, with its sign.
        clip: the largest absolute value of a coordinate that an honest client sends.
        rotate: whether vectors are rotated at random before, so that no coordinate sticks out.
        ring: bits of a ring element.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    bits: Annotated[int, Ge(2)] = 20
    clip: Annotated[float, Gt(0)] = 4.0
    rotate: bool = False
    ring: Literal[32, 64] = 32


def _form(value: Any) -> str:
    """Which form of secure aggregation is meant, so that a message speaks of that one."""
    if isinstance(value, Groups | GroupTested):
        return type(value).__name__
    return ("GroupTested" if "group_testing" in value else "Groups") if isinstance(value, dict) else "Word"


def _noise_form(value: Any) -> str | None:
    """Which kind of noise is meant; None for none that is known."""
    if isinstance(value, str):
        return "Word"
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind.capitalize() if kind in ("distributed", "record", "client") else None


@dataclass(frozen=True)
class SessionSize:
    """How many clients a session has.

    Attributes:
        expected: number of clients; of the smallest group, where there are several.
        most: the most that it may have.
        colluders: A, those of a round that may collude with the server; all of them may sit in one group.
        honest: how many are expected to stay, and neither to collude nor to be malicious: they surely add their noise.
        malicious: those of a round that attack the training; all of them may sit in one group. Nothing says that they are
            among the colluders.
    """

    expected: int
    most: int
    colluders: int
    honest: int
    hostile: int = 0

    @property
    def withholding(self) -> int:
        """How many may add no noise: colluders and malicious clients together, as if nobody were both."""
        return self.colluders + self.hostile

    @property
    def colluding(self) -> float:
        """The share of its clients that it withstands."""
        return min(self.colluders / self.expected, 1 - 1e-9) if self.expected else 0.0

    def check_left(self, rate: float, needed: int) -> None:
        """Raise `ConfigError` unless ``needed`` clients stay on average when each drops out with the chance ``rate``."""
        left = self.expected * (1 - rate)
        require(
            left >= needed,
            f"dropout.rate: a session of {self.expected} clients keeps {left:.3g} on average, and needs {needed} to end. "
            "Lower dropout.rate or colluding, or take larger groups.",
        )

    @property
    def fewest(self) -> int:
        """It is not opened with fewer: two honest clients hide each other, and of two clients each would know the other."""
        return max(3, self.colluders + 2)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What stands between the clients and the server.

    Args:
        secure_aggregation: what the server sees: each update (``off``), one sum (``full``), sums of groups, or one sum of
            those who passed a group test.
        colluding: the share of a round's clients that may collude with the server, which the masks withstand.
        dropout: who falls silent.
        encoding: of the updates, under masks.
        norm_bound: the largest length of an update, malicious ones included, as if each client proved it; None for no proofs.
        privacy: the noise that is added.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    secure_aggregation: Annotated[
        Annotated[Literal["off", "full"], Tag("Word")]
        | Annotated[Groups, Tag("Groups")]
        | Annotated[GroupTested, Tag("GroupTested")],
        Discriminator(_form),
    ] = "off"
    colluding: Annotated[float, Ge(0), Lt(1)] = 0.1
    dropout: Dropout = field(default_factory=Dropout)
    encoding: FixedPoint = field(default_factory=FixedPoint)
    norm_bound: Annotated[float, Gt(0)] | None = None
    privacy: Annotated[
        Annotated[Literal["none"], Tag("Word")]
        | Annotated[DistributedNoise, Tag("Distributed")]
        | Annotated[RecordNoise, Tag("Record")]
        | Annotated[ClientNoise, Tag("Client")],
        Discriminator(
            _noise_form,
            custom_error_type="kind_of_privacy",
            custom_error_message="Input should be none, or settings with kind: distributed, record or client",
        ),
    ] = "none"

    @property
    def mode(self) -> str:
        """``off``, ``full``, ``groups`` or ``group_testing``."""
        if isinstance(self.secure_aggregation, str):
            return self.secure_aggregation
        return "groups" if isinstance(self.secure_aggregation, Groups) else "group_testing"

    @property
    def masked(self) -> bool:
        return self.mode != "off"

    @property
    def fixed_point(self) -> FixedPoint:
        """The encoding; with distributed noise its clip is the noise's, for no coordinate exceeds the vector's length."""
        noise = self.privacy
        return replace(self.encoding, clip=noise.clip) if isinstance(noise, DistributedNoise) else self.encoding

    @property
    def undefended(self) -> Protocol:
        """The same, without what in it works against malicious clients."""
        mode = "full" if isinstance(self.secure_aggregation, GroupTested) else self.secure_aggregation
        return replace(self, secure_aggregation=mode, norm_bound=None)

    def rows(self, n: int) -> int:
        """How many rows the server's rule gets when n clients take part."""
        if isinstance(self.secure_aggregation, Groups):
            return min(self.secure_aggregation.groups, n)
        return 1 if self.masked else n

    def colluders(self, n: int) -> int:
        """A, the number of n clients that may collude with the server."""
        return math.floor(self.colluding * n + 1e-9)

    def session(self, expected: int, most: int, hostile: int = 0) -> SessionSize:
        """The size of a session, or of a group's, in rounds of ``expected`` and at most ``most`` clients.

        Args:
            malicious: how many of all clients attack the training.
        """
        hostile = min(hostile, most)
        groups = self.secure_aggregation.groups if isinstance(self.secure_aggregation, Groups) else 1
        return SessionSize(
            expected=expected // groups,
            most=-(-most // groups),
            colluders=self.colluders(expected),
            honest=math.floor(expected // groups * (1 - self.dropout.rate) + 1e-9) - self.colluders(expected) - hostile,
            hostile=hostile,
        )
