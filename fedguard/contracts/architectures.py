"""How the parties train together: the training's settings, the set-up of one cell, and what each round reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Lt
from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.attacks import PoisonAttack
from fedguard.contracts.protocol import Protocol
from fedguard.contracts.rules import Pipeline
from fedguard.contracts.sight import Exposure, Sight, ThreatModel
from fedguard.contracts.tasks import Evaluation, LocalPlan, Task, Trigger
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the federation trains.

    FedSGD: each client sends the negative gradient of one batch, and the server adds ``lr * server_lr`` times the aggregate.
    FedAvg: each client runs ``local_epochs`` of SGD with step ``lr`` and sends what it moved by; the server adds
    ``server_lr`` times the aggregate.

    Args:
        algorithm: what a client sends of its training.
        rounds: number of rounds.
        local_epochs: passes over a client's examples in a round, FedAvg only.
        batch_size: examples per local step; None takes all of a client's.
        lr: step size of the clients; of FedSGD, the server's.
        momentum: of the local SGD, FedAvg only; starts from 0 in each round.
        worker_momentum: beta of ``m <- beta m + (1 - beta) u``, kept by each client across rounds; it sends m instead of u.
        server_lr: what the server multiplies the aggregate by, beside `lr` in FedSGD.
        server_momentum: mu of ``v <- mu v + aggregate``; the server adds v instead of the aggregate.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    algorithm: Literal["fedavg", "fedsgd"] = "fedavg"
    rounds: Annotated[int, Ge(1)] = 30
    local_epochs: Annotated[int, Ge(1)] = 1
    batch_size: Annotated[int, Ge(1)] | None = 16
    lr: Annotated[float, Gt(0)] = 0.1
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    worker_momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    server_lr: Annotated[float, Gt(0)] = 1.0
    server_momentum: Annotated[float, Ge(0), Lt(1)] = 0.0

    def plan(self) -> LocalPlan:
        """What one honest client does in one round."""
        if self.algorithm == "fedsgd":
            return LocalPlan(lr=1.0, batch_size=self.batch_size, steps=1)
        return LocalPlan(lr=self.lr, batch_size=self.batch_size, epochs=self.local_epochs, momentum=self.momentum)

    @property
    def server_step(self) -> float:
        """What the server multiplies the aggregate by before it adds it to the model."""
        return self.server_lr * self.lr if self.algorithm == "fedsgd" else self.server_lr


@dataclass(frozen=True, kw_only=True)
class Participation:
    """Who takes part in a round.

    Args:
        total: number of clients.
        per_round: how many are chosen: a whole number of clients, or a fraction of them in (0, 1].
        sampling: ``fixed`` draws exactly that many without replacement; ``poisson`` draws each client on its own
            with that probability, so that the number varies; ``cyclic`` draws nothing: the clients are dealt into
            ``total / per_round`` groups, by their numbers and in public, which take turns.
    """

    total: int
    per_round: int | float = 1.0
    sampling: Literal["fixed", "poisson", "cyclic"] = "fixed"

    @property
    def expected(self) -> int:
        """Number of clients in a round; under Poisson sampling, its mean, rounded."""
        count = self.per_round if isinstance(self.per_round, int) else self.per_round * self.total
        return max(1, round(count))

    @property
    def most(self) -> int:
        """The largest number of clients that a round may have."""
        return self.total if self.sampling == "poisson" and self.expected < self.total else self.expected

    @property
    def scheme(self) -> Literal["fixed", "poisson", "cyclic", "none"]:
        """The sampling; ``none`` where all clients take part in each round."""
        return "none" if self.expected == self.total else self.sampling

    @property
    def separation(self) -> int:
        """The fewest rounds from one participation of a client to its next, whatever is drawn."""
        return self.total // self.expected if self.sampling == "cyclic" else 1

    def participations(self, rounds: int) -> int:
        """In how many of so many rounds one client may take part, whatever is drawn."""
        return -(-rounds // self.separation)

    def choose(self, rng: Rng, round: int) -> tuple[int, ...]:
        """The clients of one round (from 1), in ascending order; under Poisson sampling perhaps none."""
        if self.expected == self.total:
            return tuple(range(self.total))
        if self.sampling == "cyclic":
            return tuple(range((round - 1) % self.separation, self.total, self.separation))
        draw = rng.numpy()
        if self.sampling == "fixed":
            return tuple(sorted(draw.choice(self.total, self.expected, replace=False).tolist()))
        return tuple((draw.random(self.total) < self.expected / self.total).nonzero()[0].tolist())


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
    """

    sent: Tensor
    after: Tensor
    clients: tuple[int, ...]
    updates: Tensor
    behind: tuple[tuple[int, ...], ...]
    rows: Tensor
    aggregate: Tensor | None


@dataclass(frozen=True)
class Setup:
    """All that an architecture needs to run one cell with one seed.

    Attributes:
        hostile: the clients that collude (or are faulty).
        told: how many hostile clients, of all clients, the server is told to expect.
        attack_sees: the sights that the attack was found to have (see `fedguard.visibility`).
        rule_sees: the same for the server's rule.
    """

    task: Task
    pipeline: Pipeline
    attack: PoisonAttack | None
    hostile: frozenset[int]
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

    def told_among(self, n: int) -> int:
        """How many of n clients the server reckons to be hostile: the assumed share, rounded up."""
        return -(-self.told * n // self.participation.total)


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
        contributors: the fewest clients in a sum who surely added their share of any noise: all but those that may collude.
        error: length of (decoded mean - true mean of the same clients' updates) over that of the true one; None where
            there is no sum, or the true mean is zero. Over groups, the root of the sums of squares.
        clipped: the share of the honest updates' coordinates that the encoding cut.
        bytes_up, bytes_down: what all clients sent, and what the server sent.
        left_out: the clients whom the protocol left out of the sums, since it takes them to be hostile.
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


@dataclass(frozen=True)
class RoundReport:
    """What happened in one round.

    Attributes:
        round: from 1.
        model: float32 ``[d]``, after the round.
        clients: whose updates reached the server, those that it left out included.
        hostile: those of them that acted for the attack.
        told: the f that the rule was told for this round: how many rows may be hostile.
        not_finite: the clients whose update held NaN or infinity; the server dropped these, or they could not be encoded.
        excluded: the clients whose update got no weight; None for rules without weights.
        abandoned: why the round changed nothing; None where it did.
        evaluation: of the new model, in rounds where it was evaluated; so are the figures below.
        kappa: ``|R - mu|^2 / mean_i |x_i - mu|^2`` over the honest updates x_i with mean mu: what this round's aggregate R
            shows of the rule's robustness coefficient.
        cosine: between R and mu.
        hostile_length: mean length of the hostile updates over that of the honest ones.
        backdoor: the trigger's success rate on the new model; None without a backdoor.
        planted: the trigger as it was in this round, and its target.
        notes: what the attack says of itself, see `PoisonAttack.notes`.
        behind: the clients behind each row that the rule was given: one, or those of a sum.
        silent: the clients that dropped out before their update reached anybody.
        chosen: the clients that were asked to train.
        clip: the largest length of an update, where the server clips for privacy.
        masked: what secure aggregation came to; None where it is off.
        watched: the round whole, for an observer that watches it.
    """

    round: int
    model: Tensor
    clients: tuple[int, ...]
    hostile: frozenset[int]
    told: int
    not_finite: tuple[int, ...]
    excluded: tuple[int, ...] | None
    abandoned: str | None
    evaluation: Evaluation | None
    kappa: float | None
    cosine: float | None
    backdoor: float | None
    planted: tuple[Trigger, int] | None
    notes: dict[str, float]
    hostile_length: float | None = None
    behind: tuple[tuple[int, ...], ...] = ()
    silent: tuple[int, ...] = ()
    chosen: tuple[int, ...] = ()
    clip: float | None = None
    masked: MaskedRound | None = None
    watched: Watched | None = None

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
    #: What the two sides see when nothing is masked.
    exposes: ClassVar[Exposure]

    @abstractmethod
    def run(self, setup: Setup) -> Iterator[RoundReport]:
        """Train, one report a round; the last report holds the final model."""
