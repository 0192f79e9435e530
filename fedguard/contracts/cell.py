"""A cell, what it asks about itself, and the set-up of its training with one seed.

A mode of secure aggregation and a mechanism of noise are one class each. Both see the whole cell that they belong to, so they
are defined beside it. What a mode hides is compared with what rules and attacks need before anything runs
(`fedguard.visibility`); in a training it makes a `Receiver`, which connects the clients to the server. Noise acts at one of
three places: in the clients' training (`Noise.local_plan`), in their inputs to a secure sum (`Noise.in_sums`), or at a server
that is trusted to add it (`Noise.at_server`).
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, cast

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.audit import Check, Lab, Subject
from fedguard.contracts.availability import Availability
from fedguard.contracts.channels import SAMPLES
from fedguard.contracts.context import CellContext
from fedguard.contracts.federated import AlgorithmSetup, FederatedAlgorithm
from fedguard.contracts.lying import Channel, Reported
from fedguard.contracts.noise import PrivacyGuarantee, ServerNoise, SumNoise
from fedguard.contracts.observers import Observer
from fedguard.contracts.participation import Participation
from fedguard.contracts.protocol import FixedPoint, SessionSize
from fedguard.contracts.reports import RoundReport
from fedguard.contracts.sight import MASKED_SUM, SINGLE_UPDATES, Sight
from fedguard.contracts.statistics_fate import StatisticsFate
from fedguard.contracts.stopwatch import Stopwatch
from fedguard.contracts.tasks import Examples, LocalPlan
from fedguard.contracts.wire import ReceivedRound, SentRound
from fedguard.rng import Rng


class Receiver(ABC):
    """A mode of secure aggregation in one training, with the state that its parties keep between rounds."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def receive(self, sent: SentRound) -> ReceivedRound:
        """What reaches the server of the clients' messages. The memory of the updates may be reused."""


class Masking(Algorithm):
    """A mode of secure aggregation with its parameters. Sights that it does not show are hidden."""

    kind: ClassVar[str] = "masking"
    #: What it hides
    hides: ClassVar[Sight] = SINGLE_UPDATES | Sight.GROUP_SUMS
    #: What it shows the server instead; a single update is never shown
    shows: ClassVar[Sight] = MASKED_SUM
    #: What the server sees for the mode itself, but no rule gets
    kept_from_rules: ClassVar[Sight] = Sight.NOTHING
    #: Whether the clients send masked vectors, of which the server sees sums
    masked: ClassVar[bool] = True
    #: Whether the server sees several sums that contain the same client
    overlapping: ClassVar[bool] = False
    #: For threat cards: who sees what
    words: ClassVar[str]
    #: What it costs the clients
    cost: ClassVar[str]
    #: What to do about a rule that it hides too much from
    remedy: ClassVar[str] = "Use mean or client_clipping >> mean, mask within groups, or switch masking off."
    #: What to do about a rule that it gives too few rows; empty if nothing helps
    more_rows: ClassVar[str] = ""
    #: Example parameters for some 100 clients, to list the defenses that can run
    example: ClassVar[Mapping[str, Any]] = {}

    @property
    def setting(self) -> Any:
        """Its form in a suite, with every parameter; a parameter with the name of the mode replaces that name."""
        values = self.parameters()
        if not values:
            return self.name
        return values if self.name in values else {self.name: values}

    @property
    def undefended(self) -> Masking:
        """The mode without its measures against malicious clients."""
        return self

    @property
    def of_larger_sums(self) -> Masking:
        """A mode with larger sums that gives the plain mean the same result, so that fewer clients suffice."""
        return self

    def sessions(self, clients: int) -> int:
        """Number of disjoint sessions into which the clients of a round are divided, with sizes that differ by one at most."""
        return 1

    def rows(self, clients: int) -> int:
        """Number of rows that the server's rule gets from this number of clients."""
        return min(self.sessions(clients), clients)

    def check(self, cell: Cell) -> None:
        """Check that it can run among these clients; no further check by default.

        Raises:
            ConfigError: parameters that exclude each other, or that do not fit clients, training or protocol.
        """

    def reasons(self, server: Sight) -> Iterator[str]:
        """Why it cannot run if the server sees this: a line for each reason."""
        return iter(())

    def smallest_sum(self, cell: Cell) -> int:
        """The fewest clients in a sum that the server can form from what it sees, if nobody drops out."""
        return cell.size.expected

    @abstractmethod
    def receiver(self, setup: Setup) -> Receiver:
        """The receiver of one training.

        Raises:
            ConfigError: it cannot keep its guarantee among these clients, or its sums do not fit the ring.
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
class Cell(CellContext):
    """One combination of task, clients, training, protocol, attack and defense, without a seed.

    Attributes:
        algorithm, masking, noise: what ``training.algorithm``, ``protocol.secure_aggregation`` and ``protocol.privacy`` name.
        availability: what ``network.availability`` names; always if time is not simulated.
        statistics: what ``training.statistics`` names: the fate of running statistics, if the network has any.
    """

    algorithm: FederatedAlgorithm
    masking: Masking
    noise: Noise
    availability: Availability
    statistics: StatisticsFate

    @property
    def plan(self) -> LocalPlan:
        """What one honest client does in one round, apart from noise and from what depends on earlier rounds."""
        return self.algorithm.plan(self.training)

    @property
    def server_step(self) -> float:
        """Factor of the aggregate before the server adds it to the model."""
        return self.algorithm.server_step(self.training)

    @property
    def size(self) -> SessionSize:
        """Size of one session of secure aggregation; of the smallest group's session if there are several."""
        return self.session(self.clients.expected, self.clients.most, self.attacking)

    def session(self, expected: int, most: int, malicious: int = 0) -> SessionSize:
        """Size of a session, or of a group's session, in rounds of ``expected`` and at most ``most`` clients.

        Args:
            malicious: number of all clients that attack the training.
        """
        malicious, colluders = min(malicious, most), self.protocol.colluders(expected)
        smallest = expected // self.masking.sessions(expected)
        return SessionSize(
            expected=smallest,
            most=-(-most // self.masking.sessions(most)),
            colluders=colluders,
            honest=math.floor(smallest * (1 - self.protocol.dropout.rate) + 1e-9) - colluders - malicious,
            malicious=malicious,
        )

    @property
    def fixed_point(self) -> FixedPoint:
        """The encoding; noise that clips vectors sets its clip, since no coordinate exceeds the norm of its vector."""
        clip, encoding = self.noise.sum_clip, self.protocol.encoding
        return encoding if clip is None else replace(encoding, clip=clip)

    @property
    def loses(self) -> bool:
        """Whether an update may never arrive in simulated time."""
        return self.network is not None and (self.network.link.loss > 0 or self.availability.may_leave)

    @property
    def private(self) -> bool:
        """Whether any noise is added."""
        return self.noise.unit is not None


@dataclass(frozen=True, kw_only=True)
class Setup(AlgorithmSetup):
    """All that an architecture needs to train one cell with one seed.

    Attributes:
        evaluate_every: rounds between evaluations.
        observer: an adversary that infers; None if nobody does.
        memory: bytes that one matrix of updates may take. A larger one is kept in a file, with about this much in memory at a
            time; None for no limit.
        trainer: trains honest clients on machines of their own: called with the model that they start from (float32 ``[d]``, or
            ``[n, d]`` with a row for each), the round of each, and their numbers; returns the message of each, float32
            ``[any]`` (`RunningAlgorithm.pack_message`). None for this process, all at once.
        noise: root stream of all noise for privacy. The cell is part of its path, so that no two cells of a seed share noise,
            although they share all other streams; None for a stream below ``rng``.
        secret: whether ``noise`` came from the operating system, so that no record reveals it. Then all draws whose secrecy an
            epsilon relies on come from there too: the batches of DP-SGD, and the selection of clients if it hides them.
        stopwatch: records which stage of a round is running.
        keep: keeps what a replay of the rounds needs: called with the round, what arrived, the aggregate (float32 ``[d]``; None
            if the round was abandoned), and the weights of its rows (float64 ``[m]``; None for rules without weights).
    """

    cell: Cell
    evaluate_every: int = 1
    observer: Observer | None = None
    memory: int | None = None
    trainer: Callable[[Tensor, Sequence[int], tuple[int, ...]], Sequence[Tensor]] | None = None
    noise: Rng | None = field(default=None, repr=False)
    secret: bool = False
    stopwatch: Stopwatch = field(default_factory=Stopwatch, compare=False, repr=False)
    keep: Callable[[int, ReceivedRound, Tensor | None, Tensor | None], None] | None = None

    def with_parts(self, **parts: Any) -> Self:
        """The same set-up of a cell with these parts in the places of its own."""
        return replace(self, cell=replace(self.cell, **parts))

    @cached_property
    def pool(self) -> tuple[Examples, ...]:
        """The malicious clients' own examples, in the order of their numbers."""
        return tuple(self.task.examples(client) for client in sorted(self.malicious))

    @cached_property
    def claims(self) -> tuple[int, ...]:
        """The number of examples that each client claims; malicious clients lie while they act."""
        return tuple(
            self.cell.attack.report(SAMPLES, size) if self.cell.attack and client in self.malicious else size
            for client, size in enumerate(self.task.sizes)
        )

    def report(self, channel: Channel[Reported, []], client: int, truth: Reported, round: int) -> Reported:
        """What a client reports in a round: the truth, unless it acts and the attack lies on this channel.

        Raises:
            ContractError: the lie is no valid value of the channel.
        """
        return self.cell.attack.report(channel, truth) if self.cell.attack and client in self.acting(round) else truth

    @property
    def local_plan(self) -> LocalPlan:
        """What an honest client does in one round, including its noise for privacy."""
        return self.cell.noise.local_plan(self.cell)

    @property
    def noise_rng(self) -> Rng:
        """The root of all streams of noise for privacy; the adversary never has it."""
        return self.rng.child("noise") if self.noise is None else self.noise

    def choose_clients(self, round: int, clients: Participation | None = None) -> tuple[int, ...]:
        """The clients selected for a round, of the cell's clients or of others."""
        hidden = self.secret and self.cell.noise.unit == "client"
        rng = self.noise_rng if hidden else self.rng
        return (clients or self.cell.clients).choose(rng.child("participation", round), round)

    def acting(self, round: int) -> frozenset[int]:
        """The malicious clients, in a round in which they act."""
        return self.malicious if self.cell.attack and self.cell.threat.acts(round) else frozenset()

    def due(self, round: int) -> bool:
        """Whether the model is evaluated after this round."""
        return round == self.cell.training.rounds or round % self.evaluate_every == 0

    def assume_f_among(self, n: int) -> int:
        """Number of n clients that the server assumes to be malicious: the assumed share, rounded up."""
        return scale_assumed_f(n, self.cell.assumed_f, self.cell.clients.total)


def honest_plan(setup: Setup) -> LocalPlan:
    """`Setup.local_plan` with the streams of the honest clients' noise and secret batches, for their training only."""
    return replace(setup.local_plan, noise=setup.noise_rng, secret=setup.secret)


def scale_assumed_f(n: int, assumed_f: int, total: int) -> int:
    """Number of malicious ones among n clients if ``assumed_f`` of ``total`` are, rounded up."""
    return -(-assumed_f * n // total)
