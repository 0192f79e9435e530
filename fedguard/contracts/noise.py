"""Noise for privacy: who adds it to what, whom it hides, and what it proves.

A kind of noise is one class. It acts at one of three places: in the clients' training (`Noise.local_plan`), in what they put
into a secure sum (`Noise.in_sums`), or at a server that is trusted to add it (`Noise.at_server`).
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
from fedguard.contracts.evasion import EvasionAttack
from fedguard.contracts.sight import Sight
from fedguard.contracts.tasks import LocalPlan
from fedguard.rng import Rng

if TYPE_CHECKING:
    from fedguard.contracts.attacks import Ensemble, PoisonAttack
    from fedguard.contracts.inference import InferenceAttack
    from fedguard.contracts.network import Network
    from fedguard.contracts.participation import Meeting, Participation
    from fedguard.contracts.protocol import Protocol, SessionSize
    from fedguard.contracts.reports import RoundReport
    from fedguard.contracts.rules import Pipeline
    from fedguard.contracts.tasks import Model, Source
    from fedguard.contracts.training import Training

#: What a server carries from round to round.
Carried = TypeVar("Carried", bound="NoiseState")


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Who trains how, and what stands between them and the server.

    Args:
        malicious: number of malicious clients, who add no noise.
        attack_sees: what they see.
        meeting: how updates meet in simulated time; None in rounds of those who are chosen.
    """

    protocol: Protocol
    clients: Participation
    training: Training
    malicious: int = 0
    attack_sees: Sight = Sight.NOTHING
    meeting: Meeting | None = None

    @property
    def size(self) -> SessionSize:
        """Of one session of secure aggregation, or of the smallest group's."""
        return self.protocol.session(self.clients.expected, self.clients.most, self.malicious)


@dataclass(frozen=True, kw_only=True)
class Combination(Federation):
    """A cell as its parts see each other before anything runs.

    Args:
        copied: whether malicious clients hold copies of honest clients' examples.
        shared: the share of the training examples that is public, of which each client holds a copy.
        rule_sees: what the server's rule sees.
        adversary: who attacks the training.
        inference: who attacks the clients' privacy.
        network: the simulated world, where there is one.
        evasion: what the final model is put to, where anything is.
        told: how many of all clients are reckoned to be malicious.
        attackers: how many attack the training.
        lookers: how many nodes infer, of a training without a server; 0 where a server does.
        watched_round: the round that an attack on privacy watches, if it watches one.
    """

    pipeline: Pipeline
    model: Model
    data: Source
    copied: bool
    rule_sees: Sight = Sight.NOTHING
    adversary: PoisonAttack | Ensemble | None = None
    inference: InferenceAttack | None = None
    network: Network | None = None
    evasion: EvasionAttack | None = None
    shared: float = 0.0
    told: int = 0
    attackers: int = 0
    lookers: int = 0
    watched_round: int = 1


@dataclass(frozen=True, kw_only=True)
class PrivacyGuarantee:
    """What the noise of a training proves.

    Args:
        epsilon: with its meaning; None where nothing was released.
        why: it is no guarantee after all; None where it is one.
        facts: what a record says of the noise: its ``mechanism``, ``noise_multiplier``, ``clip`` and number of ``rounds``, and
            what belongs to this kind of noise alone.
    """

    epsilon: Epsilon | None
    why: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NoiseState:
    """What a server that adds noise carries to the next round: the largest length of an update that counts, and more."""

    clip: float


class ServerNoise(ABC, Generic[Carried]):
    """What a trusted server publishes of a round's updates."""

    @abstractmethod
    def start(self) -> Carried:
        """Before the first round."""

    @abstractmethod
    def release(
        self, updates: Tensor, state: Carried, rng: Rng, weights: Tensor | None = None
    ) -> tuple[Tensor, Carried]:
        """The noisy aggregate of a round (float32 ``[d]``), and what is carried on.

        Args:
            updates: float32 ``[n, d]``, finite; n may be 0.
            weights: float32 ``[n]``, public: what each counts for, once it is clipped; None for 1 each.
        """


class SumNoise(ABC):
    """What each client does to what it puts into a secure sum.

    Attributes:
        clip: the largest length of an honest client's input.
    """

    clip: float

    @abstractmethod
    def encode(self, vector: NDArray[np.floating[Any]], entropy: Callable[[int], bytes]) -> NDArray[np.int64]:
        """int64 ``[d]``: clipped, scaled, rounded and noisy."""

    @abstractmethod
    def noise_tail(self, clients: int) -> int:
        """What the noise of so many clients practically never exceeds on any coordinate, in ring units."""

    @property
    @abstractmethod
    def fewest(self) -> int:
        """With fewer contributors no sum is opened; 0 where any number will do.

        Raises:
            ConfigError: not even all contributors keep the promise.
        """


class Noise(Algorithm):
    """A kind of noise that is added for privacy, with its parameters."""

    kind: ClassVar[str] = "noise"
    #: Whose presence it hides; None hides nobody.
    unit: ClassVar[Literal["record", "client"] | None]
    #: Who adds it. Whoever trusts a server to do so lets it see the updates, and nobody else.
    added_by: ClassVar[Literal["client", "server"] | None] = "client"
    #: Whether `account_privacy` counts each client's own releases in simulated time, where speeds decide who takes part in
    #: what, and its server takes the weights of late updates. Of one that does not say so nothing is claimed there:
    #: it is refused.
    in_time: ClassVar[bool] = False
    #: For threat cards: who adds it to what, and what that hides.
    words: ClassVar[str]
    #: Of the (epsilon, delta) that it proves.
    delta: float

    @property
    def setting(self) -> Any:
        """As a suite spells it, with every parameter."""
        return {"kind": self.name, **dataclasses.asdict(cast(Any, self))}

    @property
    def sum_clip(self) -> float | None:
        """The largest length of what a client puts into a secure sum; None where the encoding's own clip counts."""
        return None

    @property
    def differs(self) -> bool:
        """Whether clients add different amounts of it."""
        return False

    def units(self, clients: int, examples: int) -> int:
        """Among how many units each is hidden."""
        return examples if self.unit == "record" else clients

    def note(self, masked: bool) -> str:
        """What a threat card says of epsilon."""
        return f"{self.words}; what it proves is in the result"

    @abstractmethod
    def check(self, federation: Federation) -> None:
        """See to it that it can be added here.

        Raises:
            ConfigError: parameters that exclude each other, or that do not fit clients, training or protocol.
        """

    def reasons(self, cell: Combination) -> Iterator[str]:
        """Why it does not go with a defense, a model, the data or an algorithm: a line for each reason."""
        prepared = cell.data.preparation
        if prepared.origin == "records":
            yield (
                f"{cell.data.name} takes {prepared.what} from the clients' own records, so that one record changes what all "
                f"clients train on; no noise hides that, and no epsilon would hold. {prepared.mend}"
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
        if why := self.beyond(cell.training):
            yield why

    def beyond(self, training: Training) -> str | None:
        """Why what it proves does not hold for an algorithm; None where it does."""
        if training.algorithm.only_updates:
            return None
        return (
            f"the noise is proven and audited for updates and their mean, and {training.algorithm.name} works with more. Use "
            "fedavg or fedprox."
        )

    @abstractmethod
    def in_words(self, federation: Federation) -> str:
        """For `fedguard check`: what it hides from whom, and how much of it there is."""

    def local_plan(self, federation: Federation) -> LocalPlan:
        """What an honest client does in one round."""
        return federation.training.plan()

    def at_server(self, federation: Federation) -> ServerNoise[Any] | None:
        """What a trusted server publishes; None where the server adds no noise."""
        return None

    def in_sums(self, federation: Federation, size: SessionSize, dim: int, scale: float) -> SumNoise | None:
        """What clients add to what they put into a session of this size; None where that is nothing.

        Args:
            dim: d, length of an input.
            scale: S, ring units per unit of the input.

        Raises:
            ConfigError: the noise cannot be shared out among so few, or does not fit the ring.
        """
        return None

    def of_mean(self, federation: Federation, dim: int) -> float:
        """Standard deviation in each coordinate of what is added to a round's mean; 0 for noise in the clients' steps."""
        return 0.0

    @abstractmethod
    def account_privacy(self, federation: Federation, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        """What it proves of the rounds of a training: the only place where its epsilon is worked out."""

    @abstractmethod
    def subjects(self, federation: Federation, lab: Lab) -> Iterator[Subject]:
        """The code that adds it, for an audit on canaries, each with what it claims."""

    def audit_rounds(self, federation: Federation, lab: Lab) -> tuple[Check, ...]:
        """Tests of the noise in some rounds of the cell's own training, with nobody malicious; none unless it brings some."""
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

    def check(self, federation: Federation) -> None:
        """Nothing to check."""

    def reasons(self, cell: Combination) -> Iterator[str]:
        return iter(())

    def in_words(self, federation: Federation) -> str:
        return ""

    def account_privacy(self, federation: Federation, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=None, why=self.words)

    def subjects(self, federation: Federation, lab: Lab) -> Iterator[Subject]:
        return iter(())
