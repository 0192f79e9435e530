"""How the parties train together: the set-up of one cell, and what an architecture makes of it."""

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
from fedguard.contracts.claims import claim_samples
from fedguard.contracts.network import Network
from fedguard.contracts.noise import Combination, Federation
from fedguard.contracts.participation import Meeting, Participation
from fedguard.contracts.protocol import Protocol
from fedguard.contracts.reports import RoundObservation, RoundReport
from fedguard.contracts.rules import Pipeline
from fedguard.contracts.sight import Exposure, Sight, ThreatModel
from fedguard.contracts.stopwatch import Stopwatch
from fedguard.contracts.tasks import Examples, LocalPlan, Task
from fedguard.contracts.training import Training
from fedguard.rng import Rng

#: Who looks, see `fedguard.config.sections.ObserverSection`.
Seating = Literal["server", "nodes", "side_by_side", "around"]


@dataclass(frozen=True)
class Observer:
    """Who infers, as far as they touch the training: which round they watch, and what a server sends in it.

    Attributes:
        round: the watched round (from 1); None for all of them.
        sends: the model -> what it sends instead, float32 ``[d]`` both; None where it keeps to the protocol. What comes back
            to another model is of no use to the training, so that round changes nothing.
        seat: the nodes that look, and pool what they hear; none where the server does.
        listens: for how many rounds after the watched one nodes go on. They listen from the first round on.
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
    """What nodes that look have of an update, or of the mean of several.

    Attributes:
        behind: whose.
        model: float32 ``[d]``: that they were trained from.
        update: float32 ``[d]``; 0 where it is not known.
        known: bool ``[d]``: which coordinates are; None for all.
    """

    behind: tuple[int, ...]
    model: Tensor
    update: Tensor
    known: Tensor | None = None


class Listeners(ABC):
    """Nodes that pool what they hear: what they can solve for. That follows from who sends what to whom, before any training.

    Attributes:
        nodes: who they are.
    """

    nodes: tuple[int, ...]

    @abstractmethod
    def reads(self, round: int) -> Mapping[int, float]:
        """Which share of its update of a round they can solve for, for each other node of which they can for any.

        They know the model that it was trained from as well.
        """

    @abstractmethod
    def sum_of(self, round: int) -> tuple[int, ...]:
        """The nodes of the smallest sum of updates of a round that hides each of them; none where they have no sum."""

    @abstractmethod
    def solve_update(self, watched: Sequence[RoundObservation], round: int, behind: tuple[int, ...]) -> SolvedUpdate:
        """The update of one node, or the mean of those in a sum, from what was heard in the watched rounds (from the first)."""


class Trainer(Protocol_):
    """Has honest clients train elsewhere than in this process: on machines of their own, each on its own examples."""

    def train(self, model: Tensor, rounds: Sequence[int], clients: tuple[int, ...]) -> Sequence[Tensor]:
        """What each of these clients sends, float32 ``[any]``: see `RunningAlgorithm.pack_message`.

        Args:
            model: float32 ``[d]``, from which all start, or ``[n, d]``, a row for each.
            rounds: in which each of them is.
        """


@dataclass(frozen=True)
class Setup:
    """All that an architecture needs to run one cell with one seed.

    Attributes:
        malicious: the malicious clients (or the faulty ones).
        told: how many malicious clients, of all clients, the server is told to expect.
        attack_sees: the sights that the attack was found to have (see `fedguard.visibility`).
        rule_sees: the same for the server's rule.
        network: the simulated world; None where nobody asks for times.
        meeting: how updates meet in simulated time; None where all of a round are waited for in rounds of `server`.
        memory: bytes that one matrix of updates may take. A larger one lies in a file, and about so much of it is held at a
            time; None for no limit.
        trainer: where honest clients train; None for this process, all at once.
        noise: below it all noise for privacy is drawn. The cell is in its path, so that no two cells of a seed share noise, as
            they share all else; None for a stream below ``rng``.
        secret: whether ``noise`` came from the operating system, so that no record leads to it. Then the draws whose secrecy an
            epsilon counts on come from there too: the batches of DP-SGD, and who takes part where clients are hidden by that.
        stopwatch: is told which stage of a round is at work.
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
        """How many examples each client says that it has; malicious ones while they act."""
        claims, attack = list(self.task.sizes), self.attack
        if attack is not None:
            for client in self.malicious:
                claims[client] = claim_samples(attack, claims[client])
        return tuple(claims)

    @property
    def federation(self) -> Federation:
        """Who trains how under which protocol, and against whom."""
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
        """What an honest client does in one round, noise for its privacy included."""
        return self.protocol.privacy.local_plan(self.federation)

    @property
    def noise_rng(self) -> Rng:
        """The root of all streams of noise for privacy; who attacks never has it."""
        return self.rng.child("noise") if self.noise is None else self.noise

    @property
    def honest_plan(self) -> LocalPlan:
        """`local_plan`, with where honest clients draw noise and secret batches from: for their training alone."""
        return replace(self.local_plan, noise=self.noise_rng, secret=self.secret)

    def choose_clients(self, round: int, clients: Participation | None = None) -> tuple[int, ...]:
        """Who is chosen for a round, of the cell's clients or of others."""
        hidden = self.secret and self.protocol.privacy.unit == "client"
        rng = self.noise_rng if hidden else self.rng
        return (clients or self.participation).choose(rng.child("participation", round), round)

    @property
    def noise_of_mean(self) -> float:
        """Standard deviation of the noise in each coordinate of a round's mean: public, and so known to shadow models."""
        return self.protocol.privacy.of_mean(self.federation, self.task.dim)

    def acting(self, round: int) -> frozenset[int]:
        """The malicious clients, in a round in which they act."""
        return self.malicious if self.attack and self.threat.acts(round) else frozenset()

    def due(self, round: int) -> bool:
        """Whether the model is evaluated after this round."""
        return round == self.training.rounds or round % self.evaluate_every == 0

    def assume_f_among(self, n: int) -> int:
        """How many of n clients the server reckons to be malicious: the assumed share, rounded up."""
        return scale_assumed_f(n, self.told, self.participation.total)


def scale_assumed_f(n: int, told: int, total: int) -> int:
    """How many of n clients are malicious if ``told`` of ``total`` are, rounded up."""
    return -(-told * n // total)


@dataclass(frozen=True)
class Messages:
    """What one training of a client takes, in bytes from it and to it; and in how many messages each way, one after another."""

    up: int
    down: int
    each_way: int = 1


class Architecture(Algorithm):
    """A way of training together: who sends what to whom, in which order."""

    kind: ClassVar[str] = "architecture"
    #: Whether who trains when follows from simulated time.
    in_time: ClassVar[bool] = False
    #: What it asks devices and takes their word for: methods of an attack that may lie, such as ``checks_in``.
    believes: frozenset[str] = frozenset()
    #: Whether the server keeps transitions of actors, and learns from them again and again.
    replays: ClassVar[bool] = False
    #: What the two sides see when nothing is masked.
    exposes: ClassVar[Exposure]

    @property
    def shows_others(self) -> str:
        """What a device has or reads that is another's, a sentence for threat cards; empty where there is nothing."""
        return ""

    def updates(self, clients: Participation) -> int:
        """How many updates are expected to meet in one aggregate."""
        return clients.expected

    @property
    def more_rows(self) -> str:
        """What to do about a rule that gets too few rows, where more clients do not help; empty where they do."""
        return ""

    def messages(self, training: Training, task: Task) -> Messages:
        """What a client sends and gets in one training."""
        return Messages(training.algorithm.bytes_sent(task), 4 * task.dim)

    def rows(self, updates: int) -> int:
        """How many rows the rule gets of so many updates, before masks."""
        return updates

    @property
    def digest(self) -> str | None:
        """A digest of the file that it reads; None where there is none."""
        return None

    def sessions(self, federation: Federation) -> Federation:
        """The federation as sessions of secure aggregation meet it: how many take part, and which share falls silent."""
        return federation

    def meeting(self, clients: Participation, rounds: int) -> Meeting | None:
        """How updates meet in so many rounds of simulated time; None where a round is of those who are chosen for it."""
        return None

    def resolve_meeting(self, setup: Setup) -> Meeting | None:
        """How updates meet in this training: as planned, or where more may happen than planned, as its course has it.

        Who trains when follows from no example and no model, so that it is known before anything is trained.
        """
        return setup.meeting

    def counts_trainings(self, clients: Participation) -> bool:
        """Whether it lets no client begin more than ``most_trainings``."""
        return False

    def reasons(self, cell: Combination) -> Iterator[str]:
        """Why it does not go with the protocol, the algorithm or the participation: a line for each reason."""
        return iter(())

    def eavesdropper_sight(self, nodes: int, clients: int) -> Sight:
        """What so many nodes may see that pool what they hear, of so many clients; nothing where there is a server."""
        return Sight.NOTHING

    def trainings(self) -> int:
        """How many times a client trains in a round."""
        return 1

    def listeners(self, setup: Setup, place: Seating, nodes: int, rounds: int) -> Listeners:
        """So many nodes that look, at such places, and listen for so many rounds."""
        raise NotImplementedError

    def check(self, setup: Setup) -> None:
        """See to it that it can train on these data.

        Raises:
            PreconditionError: why it cannot.
        """

    @abstractmethod
    def run(self, setup: Setup) -> Iterator[RoundReport]:
        """Train, one report a round; the last report holds the final model."""

    def aggregates(self, setup: Setup) -> Iterator[RoundReport]:
        """The same training, one report for each aggregate, of which a round may have several."""
        return self.run(setup)
