"""Noise for differential privacy: who adds it to what, whom it hides, and what it proves.

One class describes one mechanism. It acts at one of three places: in the clients' training (`Noise.local_plan`), in their
inputs to a secure sum (`Noise.in_sums`), or at a server that is trusted to add it (`Noise.at_server`).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.audit import Check, Epsilon, Lab, Subject
from fedguard.contracts.tasks import LocalPlan
from fedguard.rng import Rng

if TYPE_CHECKING:
    from fedguard.contracts.cell import Cell
    from fedguard.contracts.federated import FederatedAlgorithm
    from fedguard.contracts.protocol import SessionSize
    from fedguard.contracts.reports import RoundReport

#: What a server keeps from round to round
Carried = TypeVar("Carried", bound="NoiseState")


@dataclass(frozen=True, kw_only=True)
class PrivacyGuarantee:
    """What the noise of a training proves.

    Args:
        epsilon: with its meaning; None if nothing was released.
        why: reason why it is no guarantee; None if it is one.
        facts: content of a record about the noise: its ``mechanism``, ``noise_multiplier``, ``clip`` and number of ``rounds``,
            and what is specific to this mechanism.
    """

    epsilon: Epsilon | None
    why: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NoiseState:
    """State of a server that adds noise, kept between rounds: the clipping bound of an update, and more."""

    clip: float


class ServerNoise(ABC, Generic[Carried]):
    """What a trusted server publishes of a round's updates."""

    @abstractmethod
    def start(self) -> Carried:
        """The state before the first round."""

    @abstractmethod
    def release(
        self, updates: Tensor, state: Carried, rng: Rng, weights: Tensor | None = None
    ) -> tuple[Tensor, Carried]:
        """The noisy aggregate of a round (float32 ``[d]``), and the state for the next one.

        Args:
            updates: float32 ``[n, d]``, finite; n may be 0.
            weights: float32 ``[n]``, public: weight of each clipped update; None for 1 each.
        """


class SumNoise(ABC):
    """What each client does to its input to a secure sum.

    Attributes:
        clip: largest norm of an honest client's input.
    """

    clip: float

    @abstractmethod
    def encode(self, vector: NDArray[np.floating[Any]], entropy: Callable[[int], bytes]) -> NDArray[np.int64]:
        """int64 ``[d]``: clipped, scaled, rounded and noisy."""

    @abstractmethod
    def noise_tail(self, clients: int) -> int:
        """A bound on each coordinate of these clients' noise, in ring units, exceeded with negligible probability."""

    @property
    @abstractmethod
    def fewest(self) -> int:
        """Smallest number of contributors with which a sum is opened; 0 for any number.

        Raises:
            ConfigError: not even all contributors keep the guarantee.
        """


class Noise(Algorithm):
    """A mechanism of differential privacy with its parameters."""

    kind: ClassVar[str] = "noise"
    #: Unit of privacy that it hides; None hides nobody
    unit: ClassVar[Literal["record", "client"] | None]
    #: Who adds it; clients that trust a server to add it let this server see their updates, and nobody else
    added_by: ClassVar[Literal["client", "server"] | None] = "client"
    #: Whether `account_privacy` counts each client's own releases in simulated time, where speeds decide who takes part in
    #: what, and its server takes the weights of late updates. A mechanism that does not declare this is refused there,
    #: since nothing would back its epsilon
    in_time: ClassVar[bool] = False
    #: For threat cards: who adds it to what, and what that hides
    words: ClassVar[str]
    #: Delta of the (epsilon, delta) that it proves
    delta: float

    @property
    def setting(self) -> Any:
        """Its form in a suite, with every parameter."""
        return {"kind": self.name, **dataclasses.asdict(cast(Any, self))}

    @property
    def sum_clip(self) -> float | None:
        """Largest norm of a client's input to a secure sum; None if the encoding's own clip applies."""
        return None

    @property
    def differs(self) -> bool:
        """Whether clients add different amounts of noise."""
        return False

    def units(self, clients: int, examples: int) -> int:
        """Number of units among which each is hidden."""
        return examples if self.unit == "record" else clients

    def note(self, masked: bool) -> str:
        """What a threat card says of epsilon."""
        return f"{self.words}; what it proves is in the result"

    @abstractmethod
    def check(self, cell: Cell) -> None:
        """Check that it can be added in this federation.

        Raises:
            ConfigError: parameters that exclude each other, or that do not fit clients, training or protocol.
        """

    def reasons(self, cell: Cell) -> Iterator[str]:
        """Why it is incompatible with a defense, a model, the data or an algorithm: a line for each reason."""
        prepared = cell.data.preparation
        if prepared.origin == "records":
            yield (
                f"{cell.data.name} takes {prepared.what} from the clients' own records, so that one record changes what all "
                f"clients train on; no noise hides that, and no epsilon would hold. {prepared.remedy}"
            )
        if cell.copied:
            yield (
                "noise hides an example that one client holds; with task.partition_among: honest a malicious client holds a "
                "copy of it. Set partition_among: all."
            )
        if cell.shared and self.unit == "record":
            yield (
                "a record's epsilon is accounted for by the number of a client's examples, and with task.shared public ones "
                "are among them. Set shared: 0, or hide whole clients."
            )
        if why := self.beyond(cell.algorithm):
            yield why

    def beyond(self, algorithm: FederatedAlgorithm) -> str | None:
        """Why its guarantee does not hold for an algorithm; None if it holds."""
        if algorithm.only_updates:
            return None
        return (
            f"the noise is proven and audited for updates and their mean, and {algorithm.name} works with more. Use "
            "fedavg or fedprox."
        )

    @abstractmethod
    def in_words(self, cell: Cell) -> str:
        """For `fedguard check`: what it hides from whom, and the amount of noise."""

    def local_plan(self, cell: Cell) -> LocalPlan:
        """What an honest client does in one round."""
        return cell.plan

    def at_server(self, cell: Cell) -> ServerNoise[Any] | None:
        """What a trusted server publishes; None if the server adds no noise."""
        return None

    def in_sums(self, cell: Cell, size: SessionSize, dim: int, scale: float) -> SumNoise | None:
        """The noise of clients in their inputs to a session of this size; None for no noise.

        Args:
            dim: d, length of an input.
            scale: S, ring units per unit of the input.

        Raises:
            ConfigError: there are too few clients to share the noise, or it does not fit the ring.
        """
        return None

    def of_mean(self, cell: Cell, dim: int) -> float:
        """Standard deviation in each coordinate of the noise on a round's mean; 0 for noise in the clients' steps."""
        return 0.0

    @abstractmethod
    def account_privacy(self, cell: Cell, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        """What it proves about the rounds of a training: the only place that computes its epsilon."""

    @abstractmethod
    def subjects(self, cell: Cell, lab: Lab) -> Iterator[Subject]:
        """The code that adds it, for an audit with canaries, each with its claim."""

    def audit_rounds(self, cell: Cell, lab: Lab) -> tuple[Check, ...]:
        """Tests of the noise in some rounds of the cell's own training without malicious clients; none by default."""
        return ()


@dataclass(frozen=True, kw_only=True)
class NoNoise(Noise):
    """No noise, and so no differential privacy."""

    name = "none"
    unit = None
    added_by = None
    words = "no noise is added, so there is no differential privacy"
    delta: ClassVar[float] = 0.0  # type: ignore[misc]

    @property
    def setting(self) -> str:
        return self.name

    def note(self, masked: bool) -> str:
        return self.words + ("; secure aggregation alone has no epsilon" if masked else "")

    def check(self, cell: Cell) -> None:
        """Nothing to check."""

    def reasons(self, cell: Cell) -> Iterator[str]:
        return iter(())

    def in_words(self, cell: Cell) -> str:
        return ""

    def account_privacy(self, cell: Cell, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=None, why=self.words)

    def subjects(self, cell: Cell, lab: Lab) -> Iterator[Subject]:
        return iter(())
