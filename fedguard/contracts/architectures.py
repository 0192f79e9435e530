"""How the parties train together: the set-up of one cell, and what each round reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.attacks import PoisonAttack
from fedguard.contracts.network import Network
from fedguard.contracts.noise import Combination, Federation
from fedguard.contracts.participation import Meeting, Participation
from fedguard.contracts.protocol import Protocol
from fedguard.contracts.returned import broken, returned
from fedguard.contracts.rules import Pipeline
from fedguard.contracts.sight import Exposure, Sight, ThreatModel
from fedguard.contracts.stopwatch import Stopwatch
from fedguard.contracts.tasks import Evaluation, Examples, LocalPlan, Task, Trigger
from fedguard.contracts.training import Training
from fedguard.rng import Rng


@dataclass(frozen=True)
class Observer:
    """A server that infers, as far as it touches the training: which round it watches, and what it sends in it.

    Attributes:
        round: the watched round (from 1); None for all of them.
        sends: the model -> what it sends instead, float32 ``[d]`` both; None where it keeps to the protocol. What comes back
            to another model is of no use to the training, so that round changes nothing.
    """

    round: int | None
    sends: Callable[[Tensor], Tensor] | None = None

    def watches(self, round: int) -> bool:
        return self.round is None or self.round == round


@dataclass(frozen=True)
class Watched:
    """One round, as somebody sees it who sees everything. Of this the core makes what the server sees.

    Attributes:
        sent: float32 ``[d]``: the model that the clients got.
        after: float32 ``[d]``: the model after the round.
        clients: the client behind each row of `updates`.
        updates: float32 ``[n, d]``: what left the clients.
        behind: the clients behind each row of `rows`.
        rows: float32 ``[m, d]``: what the server has: each update, or the means behind its sums.
        aggregate: float32 ``[d]``: what the round's aggregate came to, with any noise; None where it was abandoned.
        inputs: by client, float64 ``[d]``: what it put into a session, rounded and noisy, as if it were alone there; none
            without masks.
    """

    sent: Tensor
    after: Tensor
    clients: tuple[int, ...]
    updates: Tensor
    behind: tuple[tuple[int, ...], ...]
    rows: Tensor
    aggregate: Tensor | None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)


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
                claims[client] = returned(attack, "claim", attack.claim(claims[client]), int)
                if claims[client] < 1:
                    raise broken(attack, f"claim: expected 1 example or more; got {claims[client]}")
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
    def noise_of_mean(self) -> float:
        """Standard deviation of the noise in each coordinate of a round's mean: public, and so known to shadow models."""
        return self.protocol.privacy.of_mean(self.federation, self.task.dim)

    def acting(self, round: int) -> frozenset[int]:
        """The malicious clients, in a round in which they act."""
        return self.malicious if self.attack and self.threat.acts(round) else frozenset()

    def due(self, round: int) -> bool:
        """Whether the model is evaluated after this round."""
        return round == self.training.rounds or round % self.evaluate_every == 0

    def told_among(self, n: int) -> int:
        """How many of n clients the server reckons to be malicious: the assumed share, rounded up."""
        return told_among(n, self.told, self.participation.total)


def told_among(n: int, told: int, total: int) -> int:
    """How many of n clients are malicious if ``told`` of ``total`` are, rounded up."""
    return -(-told * n // total)


@dataclass(frozen=True)
class MaskedRound:
    """What the sessions of secure aggregation in one round came to.

    Attributes:
        clients: number of clients that took part.
        sessions: how many were run; one for all clients, or one for each group.
        aborted: why some of them gave no sum.
        survivors: number of clients whose update is in a sum.
        anonymity: the fewest clients in any sum that the server can form, less those that may collude with it; None
            where it has none.
        contributors: the fewest clients in a sum who surely added their share of any noise: all but those that may collude
            and the malicious ones.
        error: length of (decoded mean - true mean of the same clients' updates) over that of the true one; None where
            there is no sum, or the true mean is zero. Over groups, the root of the sums of squares.
        clipped: the share of the honest updates' coordinates that the encoding cut.
        bytes_up, bytes_down: what all clients sent, and what the server sent.
        left_out: the clients whom the protocol left out of the sums, since it takes them to be malicious.
    """

    clients: int
    sessions: int
    aborted: tuple[str, ...]
    survivors: int
    anonymity: int | None
    contributors: int | None
    error: float | None
    clipped: float
    bytes_up: int
    bytes_down: int
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """One training of one client, from its pull of the model on.

    Attributes:
        began, ended: simulated seconds.
        fate: of its update: ``arrived``; ``late`` for an aggregate that did not wait, which ended it; ``lost`` by the
            network; ``interrupted`` as its device left.
    """

    client: int
    began: float
    ended: float
    fate: Literal["arrived", "late", "lost", "interrupted"]


@dataclass(frozen=True)
class Moment:
    """When a round happened in simulated time, and what was spent up to then.

    Attributes:
        seconds: since the start, at its end.
        computed: seconds of computing, of all devices together.
        joules: of all devices, for computing, sending and receiving.
        bytes_up, bytes_down: sent by devices and to them.
        staleness: of each update that reached the server in this round, the number of times that the model moved since
            the one it was trained from.
        late: the clients whose training the server did not wait for.
        lost: the clients whose update the network lost.
        interrupted: the clients that left before their update had arrived.
        spans: the trainings that ended in this round, in the order in which they did.
        acting: the malicious clients that acted in this round, whether or not their updates arrived.
        releases: how often the server aggregated in this round.
        outvoted: in how many of these more rows were malicious than the rule reckoned with.
        weighed: for each noisy sum that was released, by client, what its updates in it weigh together.
    """

    seconds: float
    computed: float
    joules: float
    bytes_up: int
    bytes_down: int
    staleness: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    releases: int = 1
    outvoted: int = 0
    interrupted: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()
    acting: frozenset[int] = frozenset()
    weighed: tuple[Mapping[int, float], ...] = ()


@dataclass(frozen=True)
class RoundReport:
    """What happened in one round.

    Attributes:
        round: from 1.
        model: float32 ``[d]``, after the round.
        clients: whose updates reached the server, those that it left out included.
        malicious: those of them that acted for the attack.
        told: the f that the rule was told for this round: how many rows may be malicious.
        not_finite: the clients whose update held NaN, infinity, or values too large to be added up; the server dropped these,
            or they could not be encoded.
        excluded: the clients whose update got no weight; None for rules without weights.
        abandoned: why the round changed nothing; None where it did.
        evaluation: of the new model, in rounds where it was evaluated; so are the figures below.
        kappa: $|R - mu|^2 / (mean_i |x_i - mu|^2)$ over the honest updates $x_i$ with mean $mu$: what this round's
            aggregate R shows of the rule's robustness coefficient.
        cosine: between R and $mu$.
        malicious_length: mean length of the malicious updates over that of the honest ones.
        backdoor: the trigger's success rate on the new model; None without a backdoor.
        planted: the trigger as it was in this round, and its target.
        notes: what the attack says of itself, see `PoisonAttack.notes`.
        behind: the clients behind each row that the rule was given: one, or those of a sum.
        too_large: those of `not_finite` whose update was finite, but held values beyond $2^112$.
        silent: the clients that dropped out before their update reached anybody.
        chosen: the clients that were asked to train.
        clip: the largest length of an update, where the server clips for privacy.
        masked: what secure aggregation came to; None where it is off.
        watched: the round whole, for an observer that watches it.
        moment: when and for what it happened in simulated time; None without a simulated world.
        effect: $<R, mu> / |mu|^2$ under the attack, under each of its siblings, and under neither ("none"), as probes of
            the rule tell it; None for an attack without siblings.
    """

    round: int
    model: Tensor
    clients: tuple[int, ...]
    malicious: frozenset[int] = frozenset()
    told: int = 0
    not_finite: tuple[int, ...] = ()
    excluded: tuple[int, ...] | None = None
    abandoned: str | None = None
    evaluation: Evaluation | None = None
    kappa: float | None = None
    cosine: float | None = None
    backdoor: float | None = None
    planted: tuple[Trigger, int] | None = None
    notes: Mapping[str, float] = field(default_factory=dict)
    malicious_length: float | None = None
    behind: tuple[tuple[int, ...], ...] = ()
    too_large: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    chosen: tuple[int, ...] = ()
    clip: float | None = None
    masked: MaskedRound | None = None
    watched: Watched | None = None
    effect: Mapping[str, float] | None = None
    moment: Moment | None = None

    @property
    def received(self) -> int:
        """Number of updates that reached the server."""
        return len(self.clients)

    def without_model(self) -> RoundReport:
        """The same report, with the model let go."""
        return replace(self, model=self.model[:0].clone())


class Architecture(Algorithm):
    """A way of training together: who sends what to whom, in which order."""

    kind: ClassVar[str] = "architecture"
    #: Whether who trains when follows from simulated time.
    in_time: ClassVar[bool] = False
    #: What it asks devices and takes their word for: methods of an attack that may lie, such as ``checks_in``.
    believes: frozenset[str] = frozenset()
    #: What the two sides see when nothing is masked.
    exposes: ClassVar[Exposure]

    @property
    def shows_others(self) -> str:
        """Which examples a device has that are another's, a sentence for threat cards; empty where none leave their device."""
        return ""

    def updates(self, clients: Participation) -> int:
        """How many updates are expected to meet in one aggregate."""
        return clients.expected

    @property
    def more_rows(self) -> str:
        """What to do about a rule that gets too few rows, where more clients do not help; empty where they do."""
        return ""

    def rows(self, updates: int) -> int:
        """How many rows the rule gets of so many updates, before masks."""
        return updates

    def sessions(self, federation: Federation) -> Federation:
        """The federation as sessions of secure aggregation meet it: how many take part, and which share falls silent."""
        return federation

    def meeting(self, clients: Participation, rounds: int) -> Meeting | None:
        """How updates meet in so many rounds of simulated time; None where a round is of those who are chosen for it."""
        return None

    def reasons(self, cell: Combination) -> Iterator[str]:
        """Why it does not go with the protocol, the algorithm or the participation: a line for each reason."""
        return iter(())

    def check(self, setup: Setup) -> None:
        """See to it that it can train on these data.

        Raises:
            PreconditionError: why it cannot.
        """

    @abstractmethod
    def run(self, setup: Setup) -> Iterator[RoundReport]:
        """Train, one report a round; the last report holds the final model."""
