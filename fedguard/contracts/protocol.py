"""What stands between the clients and the server: secure aggregation, clients that fall silent, and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from fedguard.contracts.masking import Masking, NoMasking
from fedguard.contracts.noise import Noise, NoNoise
from fedguard.errors import require

#: The steps of a session, in their order; one who is silent from a step on sends neither its message nor a later one.
Step = Literal["advertise_keys", "share_keys", "masked_input", "consistency", "unmask"]

#: From these steps on a client's update reaches nobody.
BEFORE_THE_INPUT: tuple[Step, ...] = ("advertise_keys", "share_keys", "masked_input")

_STRICT: dict[str, str] = {"extra": "forbid"}


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
    malicious: int = 0

    @property
    def withholding(self) -> int:
        """How many may add no noise: colluders and malicious clients together, as if nobody were both."""
        return self.colluders + self.malicious

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
        secure_aggregation: the mode: what the server sees.
        colluding: the share of a round's clients that may collude with the server, which the masks withstand.
        dropout: who falls silent.
        encoding: of the updates, under masks.
        norm_bound: the largest length of an update, malicious ones included, as if each client proved it; None for no proofs.
        privacy: the noise that is added.
    """

    secure_aggregation: Masking = field(default_factory=NoMasking)
    colluding: float = 0.1
    dropout: Dropout = field(default_factory=Dropout)
    encoding: FixedPoint = field(default_factory=FixedPoint)
    norm_bound: float | None = None
    privacy: Noise = field(default_factory=NoNoise)

    @property
    def masked(self) -> bool:
        return self.secure_aggregation.masked

    @property
    def undefended(self) -> Protocol:
        """The same, without what in it works against malicious clients."""
        return replace(self, secure_aggregation=self.secure_aggregation.undefended, norm_bound=None)

    @property
    def fixed_point(self) -> FixedPoint:
        """The encoding; noise that clips vectors brings its own clip, for no coordinate exceeds a vector's length."""
        clip = self.privacy.sum_clip
        return self.encoding if clip is None else replace(self.encoding, clip=clip)

    @property
    def private(self) -> bool:
        """Whether any noise is added."""
        return self.privacy.unit is not None

    def rows(self, n: int) -> int:
        """How many rows the server's rule gets when n clients take part."""
        return self.secure_aggregation.rows(n)

    def colluders(self, n: int) -> int:
        """A, the number of n clients that may collude with the server."""
        return math.floor(self.colluding * n + 1e-9)

    def session(self, expected: int, most: int, malicious: int = 0) -> SessionSize:
        """The size of a session, or of a group's, in rounds of ``expected`` and at most ``most`` clients.

        Args:
            malicious: how many of all clients attack the training.
        """
        malicious = min(malicious, most)
        smallest = expected // self.secure_aggregation.sessions(expected)
        return SessionSize(
            expected=smallest,
            most=-(-most // self.secure_aggregation.sessions(most)),
            colluders=self.colluders(expected),
            honest=math.floor(smallest * (1 - self.dropout.rate) + 1e-9) - self.colluders(expected) - malicious,
            malicious=malicious,
        )
