"""A cell as its parts see each other, and the set-up of its training with one seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from fedguard.contracts.channels import SAMPLES
from fedguard.contracts.context import CellContext
from fedguard.contracts.federated import AlgorithmSetup, FederatedAlgorithm, Trainer
from fedguard.contracts.lying import Channel, Reported
from fedguard.contracts.observers import Observer
from fedguard.contracts.participation import Participation
from fedguard.contracts.protocol import SessionSize
from fedguard.contracts.stopwatch import Stopwatch
from fedguard.contracts.tasks import Examples, LocalPlan
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Cell(CellContext):
    """One combination of task, clients, training, protocol, attack and defense, without a seed.

    Attributes:
        algorithm: the federated algorithm, built from what ``training`` names.
    """

    algorithm: FederatedAlgorithm

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
        return self.protocol.session(self.clients.expected, self.clients.most, self.attacking)


@dataclass(frozen=True, kw_only=True)
class Setup(AlgorithmSetup):
    """All that an architecture needs to train one cell with one seed.

    Attributes:
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
        return scale_assumed_f(n, self.cell.told, self.cell.clients.total)


def scale_assumed_f(n: int, told: int, total: int) -> int:
    """Number of malicious ones among n clients if ``told`` of ``total`` are, rounded up."""
    return -(-told * n // total)
