"""Federated algorithms: what the clients of a round train, what they and the server keep, and what becomes of the aggregate.

An algorithm is one class with its parameters. What runs is made by `FederatedAlgorithm.start`, a `RunningAlgorithm` that keeps
what clients and server know from one round to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.sight import Sight
from fedguard.contracts.tasks import Evaluation, LocalPlan, Task
from fedguard.rng import Streams

if TYPE_CHECKING:
    from fedguard.contracts.architectures import Setup
    from fedguard.contracts.noise import Combination
    from fedguard.contracts.training import Training


class RunningAlgorithm:
    """One algorithm in one training, with what clients and server keep from round to round. As it stands here, it is FedAvg's.

    In each round `begin`, `train`, `trim`, `note` and `settle` are called in this order; `train` perhaps several times, for
    the honest clients, for the malicious clients, and for an attack that asks what honest training would give. A round that
    the server abandons is not settled, and leaves no trace.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def begin(self, chosen: Sequence[int]) -> None:
        """A round begins, for these clients."""

    def train(
        self, task: Task, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Streams, rows: Tensor
    ) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with what each of the clients would send, trained on ``task`` from ``model``.

        Where all it works with are updates, ``model`` may be float32 ``[n, d]``, a start for each, and so ``rng``.
        """
        task.local_updates(model, clients, plan, rng, rows)

    def pack_message(self, key: tuple[int, int], row: Tensor) -> Tensor:
        """float32 ``[any]``: what a client sends from a process of its own, once; as it stands, its update.

        Args:
            key: the client, and which of its trainings it is.
            row: float32 ``[d]``: what `train` made.
        """
        return row

    def receive_message(self, key: tuple[int, int], sent: Tensor, row: Tensor) -> None:
        """The server takes what a client has `sent`, as if it had been trained here; row (float32 ``[d]``) is set."""
        row.copy_(sent)

    def learn(self, keys: Sequence[tuple[int, int]], model: Tensor, rows: Tensor) -> None:
        """Set rows (float32 ``[n, d]``) to what a server makes of what arrived, at its model of now; as it stands, no more.


        Args:
            keys: the client behind each row, and which of its trainings it is.
        """

    def trim(self, rows: Tensor) -> None:
        """Set what nobody sends of an update to 0, in place."""

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        """Each of these clients keeps account of the update that it sends, float32 ``[n, d]``."""

    def settle(self, aggregate: Tensor, arrived: Collection[int], model: Tensor) -> Tensor:
        """What the server takes for the aggregate, float32 ``[d]``.

        Args:
            arrived: whose updates are behind it.
            model: float32 ``[d]``: before it moves.
        """
        return aggregate

    def gain(self, n: int) -> float:
        """What the model moves by over ``server_lr`` times the aggregate of n updates, for those who reckon with it."""
        return 1.0

    def evaluate(self, model: Tensor) -> Evaluation:
        """How the global model does on the test examples."""
        return self.setup.task.evaluate(model)


@dataclass(frozen=True, kw_only=True)
class FederatedAlgorithm(Algorithm):
    """How clients train and what the server does with it: one class, whose methods say what it changes of FedAvg.

    A parameter must not be called like a key of a suite's ``training``, beside which it stands.
    """

    kind: ClassVar[str] = "algorithm"
    #: Whether clients send what plain SGD moved them by, which DP-SGD can hide and an attack on privacy can replay.
    plain_steps: ClassVar[bool] = False
    #: Whether clients and server work with nothing but updates and their aggregate.
    only_updates: ClassVar[bool] = False
    #: Whether clients and server keep account of each update that is sent, and so count on its arriving as it is.
    keeps_account: ClassVar[bool] = False
    #: Whether clients are actors in an environment, and learn from what they meet with there instead of examples.
    acts: ClassVar[bool] = False
    #: Whether actors send trajectories, from which the server works out gradients at its own model.
    corrects: ClassVar[bool] = False
    #: Whether actors send transitions, from which the server learns again and again.
    replays: ClassVar[bool] = False
    #: Whether it learns from sequences of steps, over which a network may remember.
    sequences: ClassVar[bool] = False
    #: Whether it learns a model of the world, and from what that imagines.
    imagines: ClassVar[bool] = False
    #: The architecture whose replay it is for, if it learns from one.
    learner: ClassVar[str] = ""
    #: What a client keeps from one round to the next.
    keeps: ClassVar[str] = "nothing"
    #: What is told to whom beside the models and updates.
    tells: ClassVar[str] = "nothing"

    @property
    def alone(self) -> FederatedAlgorithm:
        """What is left of it where a server trains by itself: nothing that is between clients."""
        return self if self.only_updates else FedAvg()

    def check(self, training: Training) -> None:
        """See to it that it can train so.

        Raises:
            ConfigError: settings that it does not have, or that exclude each other.
        """

    def reasons(self, cell: Combination) -> Iterator[str]:
        """Why it does not go with an attack, a defense, a model or the protocol: a line for each reason."""
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
        if not self.only_updates and Sight.ROOT_DATA in cell.rule_sees | cell.protocol.secure_aggregation.needs[0]:
            yield (
                f"the server trains on its root data as fedavg does, and {self.name} sends another kind of update. Use fedavg."
            )
        if self.keeps_account and not rule.estimates_mean:
            yield (
                f"{self.name} takes the server's aggregate for a mean of updates, and what else {rule.name} puts into it adds "
                "up from round to round. Use trimmed_mean, or fedavg."
            )

    def plan(self, training: Training) -> LocalPlan:
        """What one honest client does in one round, but for what depends on the rounds before."""
        return LocalPlan(
            lr=training.lr,
            batch_size=training.batch_size,
            epochs=None if training.local_steps else training.local_epochs,
            steps=training.local_steps,
            momentum=training.momentum,
        )

    def server_step(self, training: Training) -> float:
        """What the server multiplies the aggregate by before it adds it to the model."""
        return training.server_lr

    def lr_alone(self, training: Training) -> float:
        """The step size at which SGD on all clients' examples together moves as the federation does."""
        return training.lr

    def floats_kept(self, task: Task) -> int:
        """How many floats each client that takes part keeps from one round to the next.

        Raises:
            ConfigError: it cannot be run on this task.
        """
        return 0

    def bytes_sent(self, task: Task) -> int:
        """What a client sends after one training, in bytes."""
        return 4 * task.dim

    def steps_taken(self, task: Task) -> int:
        """How many steps of its environments a client takes in one training; 0 of one that does not act."""
        return 0

    def start(self, setup: Setup) -> RunningAlgorithm:
        """The algorithm before the first round of a training.

        Raises:
            ConfigError: it cannot be run on this task.
        """
        return RunningAlgorithm(setup)


@dataclass(frozen=True, kw_only=True)
class FedAvg(FederatedAlgorithm):
    """Each client runs SGD on its examples and sends what it moved by; the server adds the mean.

    A client makes ``local_epochs`` passes, or ``local_steps`` steps, of size ``lr``; the server adds ``server_lr`` times the
    aggregate.
    """

    name = "fedavg"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
    plain_steps = True
    only_updates = True
