"""A cell as its parts see each other, and the set-up of its training with one seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self
from typing import Protocol as Protocol_

from torch import Tensor

from fedguard.contracts.attacks import Ensemble, PoisonAttack
from fedguard.contracts.channels import SAMPLES
from fedguard.contracts.evasion import EvasionAttack
from fedguard.contracts.federated import Training
from fedguard.contracts.inference import InferenceAttack
from fedguard.contracts.lying import Channel, Reported
from fedguard.contracts.network import Network
from fedguard.contracts.observers import Observer
from fedguard.contracts.participation import Meeting, Participation
from fedguard.contracts.protocol import Protocol, SessionSize
from fedguard.contracts.rules import Pipeline
from fedguard.contracts.sight import Sight, ThreatModel
from fedguard.contracts.stopwatch import Stopwatch
from fedguard.contracts.tasks import Examples, LocalPlan, Model, Source, Task
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination of task, clients, training, protocol, attack and defense, without a seed.

    Attributes:
        clients: the clients of the federation, or of one session of secure aggregation (`Architecture.sessions`).
        network: the simulated network; None if time is not simulated.
        meeting: how updates meet in simulated time; None if rounds consist of their selected clients.
        pipeline: the defense.
        attack, ensemble: the attack on the training, or the attacks of which the strongest counts.
        inference: the attack on the clients' privacy.
        evasion: the attack at test time on the final model.
        attacking: number of malicious clients of a training, who add no noise; 0 before it runs.
        assumed_f: f, the number of malicious clients that the server assumes, among all clients.
        attack_sees: what the attack sees (see `fedguard.visibility`).
        rule_sees: what the server's rule sees.
        copied: whether malicious clients hold copies of honest clients' examples.
        shared: share of the training examples that is public, of which each client holds a copy.
        lookers: number of observing nodes in a training without a server; 0 if a server observes.
        watched_round: the round that an attack on privacy watches, if it watches one.
    """

    data: Source
    model: Model
    clients: Participation
    training: Training
    protocol: Protocol
    pipeline: Pipeline
    network: Network | None = None
    meeting: Meeting | None = None
    threat: ThreatModel = field(default_factory=ThreatModel)
    attack: PoisonAttack | None = None
    ensemble: Ensemble | None = None
    inference: InferenceAttack | None = None
    evasion: EvasionAttack | None = None
    attacking: int = 0
    assumed_f: int = 0
    attack_sees: Sight = Sight.NOTHING
    rule_sees: Sight = Sight.NOTHING
    copied: bool = False
    shared: float = 0.0
    lookers: int = 0
    watched_round: int = 1

    @property
    def adversary(self) -> PoisonAttack | Ensemble | None:
        """The adversary of the training: a single attack, or the ensemble of which the worst counts."""
        return self.attack or self.ensemble

    @property
    def size(self) -> SessionSize:
        """Size of one session of secure aggregation; of the smallest group's session if there are several."""
        return self.protocol.session(self.clients.expected, self.clients.most, self.attacking)


class Trainer(Protocol_):
    """Trains honest clients outside this process, on machines of their own, each on its own examples."""

    def train(self, model: Tensor, rounds: Sequence[int], clients: tuple[int, ...]) -> Sequence[Tensor]:
        """The message of each of these clients, float32 ``[any]``: see `RunningAlgorithm.pack_message`.

        Args:
            model: float32 ``[d]``, from which all start, or ``[n, d]``, a row for each.
            rounds: the round in which each of them is.
        """


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that an architecture needs to train one cell with one seed.

    Attributes:
        malicious: the malicious clients (or the faulty ones).
        evaluate_every: rounds between evaluations.
        observer: an adversary that infers; None if nobody does.
        memory: bytes that one matrix of updates may take. A larger one is kept in a file, with about this much in memory at a
            time; None for no limit.
        trainer: where honest clients train; None for this process, all at once.
        noise: root stream of all noise for privacy. The cell is part of its path, so that no two cells of a seed share noise,
            although they share all other streams; None for a stream below ``rng``.
        secret: whether ``noise`` came from the operating system, so that no record reveals it. Then all draws whose secrecy an
            epsilon relies on come from there too: the batches of DP-SGD, and the selection of clients if it hides them.
        stopwatch: records which stage of a round is running.
    """

    cell: Cell
    task: Task
    rng: Rng
    malicious: frozenset[int] = frozenset()
    evaluate_every: int = 1
    observer: Observer | None = None
    memory: int | None = None
    trainer: Trainer | None = None
    noise: Rng | None = field(default=None, repr=False)
    secret: bool = False
    stopwatch: Stopwatch = field(default_factory=Stopwatch, compare=False, repr=False)

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
        return self.cell.protocol.privacy.local_plan(self.cell)

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
        hidden = self.secret and self.cell.protocol.privacy.unit == "client"
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


def scale_assumed_f(n: int, assumed_f: int, total: int) -> int:
    """Number of malicious ones among n clients if ``assumed_f`` of ``total`` are, rounded up."""
    return -(-assumed_f * n // total)
