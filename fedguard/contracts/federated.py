"""Federated algorithms: what the clients of a round train, what they and the server keep, and how the aggregate is used.

An algorithm is one class with its parameters. `FederatedAlgorithm.start` makes a `RunningAlgorithm`, which keeps the state of
clients and server from one round to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.at_clients import evaluate_at_clients
from fedguard.contracts.context import CellContext
from fedguard.contracts.statistics import LocalStatistics
from fedguard.contracts.tasks import Evaluation, LocalPlan, Task
from fedguard.contracts.training import Training
from fedguard.rng import Rng, Streams


@dataclass(frozen=True, kw_only=True)
class AlgorithmSetup:
    """What an algorithm starts from: the part of `Setup` that it may use.

    Attributes:
        malicious: the malicious clients (or the faulty ones).
    """

    cell: CellContext
    task: Task
    rng: Rng
    malicious: frozenset[int] = frozenset()

    @property
    def honest(self) -> tuple[int, ...]:
        """The other clients, by number."""
        return tuple(client for client in range(len(self.task.sizes)) if client not in self.malicious)


class RunningAlgorithm:
    """One algorithm in one training, with the state that clients and server keep between rounds. This base class is FedAvg.

    In each round `begin`, `train`, `trim`, `note` and `settle` are called in this order. `train` may be called several times:
    for the honest clients, for the malicious clients, and for an attack that asks what honest training would give. A round that
    the server abandons is not settled, and leaves no trace at the server. What a client keeps without sending it, such as its
    last layer under FedPer or its environments, goes on from the training that it did.
    """

    def __init__(self, setup: AlgorithmSetup) -> None:
        self.setup = setup

    def begin(self, chosen: Sequence[int]) -> None:
        """A round begins, for these clients."""

    def train(
        self,
        task: Task,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        rows: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with what each of the clients would send, trained on ``task`` from ``model``.

        ``statistics`` go to `Task.local_updates`.

        If the algorithm works with updates only, ``model`` may be float32 ``[n, d]``, a start for each client, and so may
        ``rng``.
        """
        task.local_updates(model, clients, plan, rng, rows, statistics)

    def pack_message(self, key: tuple[int, int], row: Tensor) -> Tensor:
        """float32 ``[any]``: the message of a client from a process of its own; by default its update.

        Args:
            key: the client, and the number of the local training.
            row: float32 ``[d]``: the result of `train`.
        """
        return row

    def receive_message(self, key: tuple[int, int], sent: Tensor, row: Tensor) -> None:
        """Set row (float32 ``[d]``) from the message ``sent`` of a client, as if it had trained in this process."""
        row.copy_(sent)

    def learn(self, keys: Sequence[tuple[int, int]], model: Tensor, rows: Tensor) -> None:
        """Set rows (float32 ``[n, d]``) to what the server makes of arrived messages at its model; unchanged by default.

        Args:
            keys: the client behind each row, and the number of its local training.
        """

    def trim(self, rows: Tensor) -> None:
        """Set the parts of an update that nobody sends to 0, in place."""

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        """Record the update that each of these clients sends, float32 ``[n, d]``."""

    def settle(self, aggregate: Tensor, arrived: Collection[int], model: Tensor) -> Tensor:
        """The aggregate as the server uses it, float32 ``[d]``.

        Args:
            arrived: the clients behind it.
            model: float32 ``[d]``: before it moves.
        """
        return aggregate

    def gain(self, n: int) -> float:
        """The model's movement over ``server_lr`` times the aggregate of n updates, for attacks that predict it."""
        return 1.0

    def evaluate(self, model: Tensor, statistics: Tensor | None = None) -> Evaluation:
        """Evaluate the model on the test examples, with these running statistics if it has any.

        Args:
            model: float32 ``[d]``, the global model.
            statistics: float32 ``[s]``, or ``[clients, s]`` where each client has its own: then at each honest client.
        """
        if statistics is not None and statistics.dim() == 2:
            return evaluate_at_clients(self.setup.task, self.setup.honest, lambda _: model, statistics)
        return self.setup.task.evaluate(model, statistics)


@dataclass(frozen=True, kw_only=True)
class FederatedAlgorithm(Algorithm):
    """How clients train and what the server does: one class whose methods describe its differences from FedAvg.

    A parameter must not have the name of a key of a suite's ``training`` section, since both are given there.
    """

    kind: ClassVar[str] = "algorithm"
    #: Whether clients send the result of plain SGD, which DP-SGD can protect and an attack on privacy can replay
    plain_steps: ClassVar[bool] = False
    #: Whether clients and server work only with updates and their aggregate
    only_updates: ClassVar[bool] = False
    #: Whether clients and server record each update that is sent, and so rely on its unchanged arrival
    keeps_account: ClassVar[bool] = False
    #: Whether clients are actors that learn from their environments instead of examples
    acts: ClassVar[bool] = False
    #: Whether actors send trajectories, from which the server computes gradients at its own model
    corrects: ClassVar[bool] = False
    #: Whether actors send transitions, from which the server learns repeatedly
    replays: ClassVar[bool] = False
    #: Whether it learns from sequences of steps, over which a network may remember
    sequences: ClassVar[bool] = False
    #: Whether it learns a world model, and from the rollouts that this imagines
    imagines: ClassVar[bool] = False
    #: The architecture with the replay that it learns from, if it learns from one
    learner: ClassVar[str] = ""
    #: The fate of running statistics beside it, unless a suite names one; empty for the default of the pipeline
    usual_statistics: ClassVar[str] = ""
    #: What a client keeps from one round to the next.
    keeps: ClassVar[str] = "nothing"
    #: What is sent to whom beside the models and updates
    tells: ClassVar[str] = "nothing"

    def check(self, training: Training) -> None:
        """Check the settings of a training.

        Raises:
            ConfigError: it does not have a setting, or settings exclude each other.
        """

    def reasons(self, cell: CellContext) -> Iterator[str]:
        """Why it is incompatible with an attack, a defense, a model or the protocol: a line for each reason."""
        rule = cell.pipeline.rule
        if cell.model.imagines != self.imagines:
            knows, does = (
                ("no model of the world", "needs one") if self.imagines else ("one of the world", "learns none")
            )
            yield (
                f"{cell.model.name} is {knows}, and {self.name} {does}. Use task.model: rssm with training.algorithm: dreaming "
                "and architecture: dreamer, or neither."
            )
        elif cell.model.recurrent and not self.sequences:
            yield (
                f"{cell.model.name} remembers from one step to the next, and {self.name} learns from each by itself. Use "
                "recurrent_dqn, or a model without memory such as towers."
            )
        if self.keeps_account and cell.protocol.norm_bound is not None:
            yield (
                f"{self.name} keeps account of what each client sends, and norm_bound shortens it afterwards. Use fedavg, or "
                "the defense client_clipping."
            )
        if cell.inference is not None and not self.plain_steps:
            yield (
                f"{cell.inference.name} replays the local steps of fedavg and fedsgd, and {self.name} takes others. Use fedavg "
                "or fedsgd."
            )
        if self.keeps_account and not rule.estimates_mean:
            yield (
                f"{self.name} takes the server's aggregate for a mean of updates, and what else {rule.name} puts into it adds "
                "up from round to round. Use trimmed_mean, or fedavg."
            )

    def plan(self, training: Training) -> LocalPlan:
        """What one honest client does in one round, apart from what depends on earlier rounds."""
        return LocalPlan(
            lr=training.lr,
            batch_size=training.batch_size,
            epochs=None if training.local_steps else training.local_epochs,
            steps=training.local_steps,
            momentum=training.momentum,
        )

    def server_step(self, training: Training) -> float:
        """Factor of the aggregate before the server adds it to the model."""
        return training.server_lr

    def lr_alone(self, training: Training) -> float:
        """The learning rate at which SGD on the pooled examples of all clients moves as the federation does."""
        return training.lr

    def floats_kept(self, task: Task) -> int:
        """Number of floats that each participating client keeps from one round to the next.

        Raises:
            ConfigError: it cannot run on this task.
        """
        return 0

    def bytes_sent(self, task: Task) -> int:
        """Bytes that a client sends after one local training."""
        return 4 * task.dim

    def steps_taken(self, task: Task) -> int:
        """Steps of its environments that a client takes in one local training; 0 without environments."""
        return 0

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        """The algorithm before the first round of a training.

        Raises:
            ConfigError: it cannot run on this task.
        """
        return RunningAlgorithm(setup)
