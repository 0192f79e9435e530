"""Architectures: the set-up of one cell, and who trains with whom, when."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal
from typing import Protocol as Protocol_

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.attacks import PoisonAttack
from fedguard.contracts.channels import SAMPLES
from fedguard.contracts.federated import Training
from fedguard.contracts.lying import Channel, Channels, Reported
from fedguard.contracts.network import Network
from fedguard.contracts.noise import Combination, Federation
from fedguard.contracts.participation import Meeting, Participation
from fedguard.contracts.protocol import Protocol
from fedguard.contracts.reports import RoundObservation, RoundReport
from fedguard.contracts.rules import Pipeline
from fedguard.contracts.sight import Exposure, Sight, ThreatModel
from fedguard.contracts.stopwatch import Stopwatch
from fedguard.contracts.tasks import Examples, LocalPlan, Task
from fedguard.rng import Rng

#: Who observes: see `fedguard.config.sections.ObserverSection`
Seating = Literal["server", "nodes", "side_by_side", "around"]


@dataclass(frozen=True)
class Observer:
    """An adversary that infers, as far as it affects the training: the watched round, and the model that a server sends in it.

    Attributes:
        round: the watched round (from 1); None for all rounds.
        sends: the model -> the model that a malicious server sends instead, float32 ``[d]`` both; None if it follows the
            protocol. Updates trained from another model are useless for the training, so the watched round changes nothing.
        seat: the observing nodes, which pool the messages they receive; empty if the server observes.
        listens: number of rounds after the watched one in which nodes observe. They observe from the first round on.
    """

    round: int | None
    sends: Callable[[Tensor], Tensor] | None = None
    seat: tuple[int, ...] = ()
    listens: int = 0

    def watches(self, round: int) -> bool:
        if self.round is None or self.round == round:
            return True
        return bool(self.seat) and round <= self.round + self.listens


@dataclass(frozen=True, eq=False)
class SolvedUpdate:
    """What observing nodes solved of an update, or of the mean of several.

    Attributes:
        behind: the nodes behind the update.
        model: float32 ``[d]``: the model from which they trained.
        update: float32 ``[d]``; 0 where it is unknown.
        known: bool ``[d]``: the known coordinates; None for all.
    """

    behind: tuple[int, ...]
    model: Tensor
    update: Tensor
    known: Tensor | None = None


class Listeners(ABC):
    """Nodes that pool the messages they receive, and the updates that they can solve for.

    The graph of messages determines what they can solve for, so it is known before any training.

    Attributes:
        nodes: the observing nodes.
    """

    nodes: tuple[int, ...]

    @abstractmethod
    def reads(self, round: int) -> Mapping[int, float]:
        """The share of its update of a round that they can solve for, for each other node with a share above 0.

        They also know the model from which this update was trained.
        """

    @abstractmethod
    def sum_of(self, round: int) -> tuple[int, ...]:
        """The nodes of the smallest solvable sum of updates of a round that hides each of them; none without such a sum."""

    @abstractmethod
    def solve_update(self, watched: Sequence[RoundObservation], round: int, behind: tuple[int, ...]) -> SolvedUpdate:
        """The update of one node, or the mean of those in a sum, from the messages of the watched rounds (from the first)."""


class Trainer(Protocol_):
    """Trains honest clients outside this process, on machines of their own, each on its own examples."""

    def train(self, model: Tensor, rounds: Sequence[int], clients: tuple[int, ...]) -> Sequence[Tensor]:
        """The message of each of these clients, float32 ``[any]``: see `RunningAlgorithm.pack_message`.

        Args:
            model: float32 ``[d]``, from which all start, or ``[n, d]``, a row for each.
            rounds: the round in which each of them is.
        """


@dataclass(frozen=True)
class Setup:
    """All that an architecture needs to run one cell with one seed.

    Attributes:
        malicious: the malicious clients (or the faulty ones).
        told: the assumed f of the server, among all clients.
        attack_sees: what the attack sees (see `fedguard.visibility`).
        rule_sees: what the server's rule sees.
        network: the simulated network; None if time is not simulated.
        meeting: how updates meet in simulated time; None if `server` waits in each round for all selected clients.
        memory: bytes that one matrix of updates may take. A larger one is kept in a file, with about this much in memory at a
            time; None for no limit.
        trainer: where honest clients train; None for this process, all at once.
        noise: root stream of all noise for privacy. The cell is part of its path, so that no two cells of a seed share noise,
            although they share all other streams; None for a stream below ``rng``.
        secret: whether ``noise`` came from the operating system, so that no record reveals it. Then all draws whose secrecy an
            epsilon relies on come from there too: the batches of DP-SGD, and the selection of clients if it hides them.
        stopwatch: records which stage of a round is running.
    """

    task: Task
    pipeline: Pipeline
    attack: PoisonAttack | None
    malicious: frozenset[int]
    threat: ThreatModel
    told: int
    attack_sees: Sight
    rule_sees: Sight
    training: Training
    participation: Participation
    rng: Rng
    evaluate_every: int = 1
    protocol: Protocol = field(default_factory=Protocol)
    observer: Observer | None = None
    memory: int | None = None
    network: Network | None = None
    meeting: Meeting | None = None
    trainer: Trainer | None = None
    noise: Rng | None = field(default=None, repr=False)
    secret: bool = False
    stopwatch: Stopwatch = field(default_factory=Stopwatch, compare=False, repr=False)

    @cached_property
    def pool(self) -> tuple[Examples, ...]:
        """The malicious clients' own examples, in the order of their numbers."""
        return tuple(self.task.examples(client) for client in sorted(self.malicious))

    @cached_property
    def claims(self) -> tuple[int, ...]:
        """The number of examples that each client claims; malicious clients lie while they act."""
        return tuple(
            self.attack.report(SAMPLES, size) if self.attack and client in self.malicious else size
            for client, size in enumerate(self.task.sizes)
        )

    def report(self, channel: Channel[Reported, []], client: int, truth: Reported, round: int) -> Reported:
        """What a client reports in a round: the truth, unless it acts and the attack lies on this channel.

        Raises:
            ContractError: the lie is no valid value of the channel.
        """
        return self.attack.report(channel, truth) if self.attack and client in self.acting(round) else truth

    @property
    def federation(self) -> Federation:
        """The training, the protocol and the clients, with those that attack."""
        return Federation(
            protocol=self.protocol,
            clients=self.participation,
            training=self.training,
            malicious=len(self.malicious),
            attack_sees=self.attack_sees,
            meeting=self.meeting,
        )

    @property
    def local_plan(self) -> LocalPlan:
        """What an honest client does in one round, including its noise for privacy."""
        return self.protocol.privacy.local_plan(self.federation)

    @property
    def noise_rng(self) -> Rng:
        """The root of all streams of noise for privacy; the adversary never has it."""
        return self.rng.child("noise") if self.noise is None else self.noise

    @property
    def honest_plan(self) -> LocalPlan:
        """`local_plan` with the streams of the honest clients' noise and secret batches, for their training only."""
        return replace(self.local_plan, noise=self.noise_rng, secret=self.secret)

    def choose_clients(self, round: int, clients: Participation | None = None) -> tuple[int, ...]:
        """The clients selected for a round, of the cell's clients or of others."""
        hidden = self.secret and self.protocol.privacy.unit == "client"
        rng = self.noise_rng if hidden else self.rng
        return (clients or self.participation).choose(rng.child("participation", round), round)

    @property
    def noise_of_mean(self) -> float:
        """Standard deviation of the noise in each coordinate of a round's mean: public, so shadow models know it too."""
        return self.protocol.privacy.of_mean(self.federation, self.task.dim)

    def acting(self, round: int) -> frozenset[int]:
        """The malicious clients, in a round in which they act."""
        return self.malicious if self.attack and self.threat.acts(round) else frozenset()

    def due(self, round: int) -> bool:
        """Whether the model is evaluated after this round."""
        return round == self.training.rounds or round % self.evaluate_every == 0

    def assume_f_among(self, n: int) -> int:
        """Number of n clients that the server assumes to be malicious: the assumed share, rounded up."""
        return scale_assumed_f(n, self.told, self.participation.total)


def scale_assumed_f(n: int, told: int, total: int) -> int:
    """Number of malicious ones among n clients if ``told`` of ``total`` are, rounded up."""
    return -(-told * n // total)


@dataclass(frozen=True)
class Messages:
    """The messages of one local training: bytes from the client and to it, and the number of consecutive messages each way."""

    up: int
    down: int
    each_way: int = 1


class Architecture(Algorithm):
    """Who sends what to whom, and in which order."""

    kind: ClassVar[str] = "architecture"
    #: Whether simulated time decides who trains when
    in_time: ClassVar[bool] = False
    #: What it asks devices or nodes without checking the answer
    channels: Channels = frozenset()
    #: Whether the server keeps transitions of actors in a replay, from which it learns repeatedly
    replays: ClassVar[bool] = False
    #: What the two sides see when nothing is masked.
    exposes: ClassVar[Exposure]

    @property
    def shows_others(self) -> str:
        """What a device has or reads of other devices, a sentence for threat cards; empty if nothing."""
        return ""

    def updates(self, clients: Participation) -> int:
        """Number of updates that are expected to meet in one aggregate."""
        return clients.expected

    @property
    def more_rows(self) -> str:
        """What to do about a rule that gets too few rows if more clients do not help; empty if they do."""
        return ""

    def messages(self, training: Training, task: Task) -> Messages:
        """What a client sends and receives in one local training."""
        return Messages(training.algorithm.bytes_sent(task), 4 * task.dim)

    def rows(self, updates: int) -> int:
        """Number of rows that the rule gets of this number of updates, before masks."""
        return updates

    @property
    def digest(self) -> str | None:
        """A digest of the file that it reads; None without a file."""
        return None

    def sessions(self, federation: Federation) -> Federation:
        """The federation as sessions of secure aggregation form it: the number of clients, and the share that drops out."""
        return federation

    def meeting(self, clients: Participation, rounds: int) -> Meeting | None:
        """How updates meet within ``rounds`` rounds of simulated time; None if a round consists of its selected clients."""
        return None

    def resolve_meeting(self, setup: Setup) -> Meeting | None:
        """How updates meet in this training: as planned, or as its simulation shows if more may happen than planned.

        Who trains when depends on no example and no model, so it is known before anything is trained.
        """
        return setup.meeting

    def counts_trainings(self, clients: Participation) -> bool:
        """Whether it stops clients after ``most_trainings`` local trainings."""
        return False

    def reasons(self, cell: Combination) -> Iterator[str]:
        """Why it is incompatible with the protocol, the algorithm or the participation: a line for each reason."""
        return iter(())

    def eavesdropper_sight(self, nodes: int, clients: int) -> Sight:
        """What ``nodes`` nodes that pool their messages may see, among ``clients`` clients; nothing if there is a server."""
        return Sight.NOTHING

    def trainings(self) -> int:
        """How many times a client trains in a round."""
        return 1

    def listeners(self, setup: Setup, place: Seating, nodes: int, rounds: int) -> Listeners:
        """The observers of a training: ``nodes`` nodes in the given position, which receive messages for ``rounds`` rounds."""
        raise NotImplementedError

    def check(self, setup: Setup) -> None:
        """Check that it can train on these data.

        Raises:
            PreconditionError: why it cannot.
        """

    @abstractmethod
    def run(self, setup: Setup) -> Iterator[RoundReport]:
        """Train, with one report per round; the last report holds the final model."""

    def aggregates(self, setup: Setup) -> Iterator[RoundReport]:
        """The same training with one report per aggregate, of which a round may have several."""
        return self.run(setup)
