"""Federated algorithms: what the clients of a round train, what they and the server keep, and how the aggregate is used.

An algorithm is one class with its parameters. `FederatedAlgorithm.start` makes a `RunningAlgorithm`, which keeps the state of
clients and server from one round to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, model_validator
from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.optimizers import ServerOptimizer
from fedguard.contracts.sight import Sight
from fedguard.contracts.tasks import Evaluation, LocalPlan, Task
from fedguard.rng import Streams

if TYPE_CHECKING:
    from fedguard.contracts.cell import Cell, Setup


class RunningAlgorithm:
    """One algorithm in one training, with the state that clients and server keep between rounds. This base class is FedAvg.

    In each round `begin`, `train`, `trim`, `note` and `settle` are called in this order. `train` may be called several times:
    for the honest clients, for the malicious clients, and for an attack that asks what honest training would give. A round that
    the server abandons is not settled, and leaves no trace at the server. What a client keeps without sending it, such as its
    last layer under FedPer or its environments, goes on from the training that it did.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def begin(self, chosen: Sequence[int]) -> None:
        """A round begins, for these clients."""

    def train(
        self, task: Task, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Streams, rows: Tensor
    ) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with what each of the clients would send, trained on ``task`` from ``model``.

        If the algorithm works with updates only, ``model`` may be float32 ``[n, d]``, a start for each client, and so may
        ``rng``.
        """
        task.local_updates(model, clients, plan, rng, rows)

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

    def evaluate(self, model: Tensor) -> Evaluation:
        """Evaluate the global model on the test examples."""
        return self.setup.task.evaluate(model)


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
    #: What a client keeps from one round to the next.
    keeps: ClassVar[str] = "nothing"
    #: What is sent to whom beside the models and updates
    tells: ClassVar[str] = "nothing"

    @property
    def alone(self) -> FederatedAlgorithm:
        """The part of it that applies to a server that trains alone, without clients."""
        return self if self.only_updates else FedAvg()

    def check(self, training: Training) -> None:
        """Check the settings of a training.

        Raises:
            ConfigError: it does not have a setting, or settings exclude each other.
        """

    def reasons(self, cell: Cell) -> Iterator[str]:
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

    def start(self, setup: Setup) -> RunningAlgorithm:
        """The algorithm before the first round of a training.

        Raises:
            ConfigError: it cannot run on this task.
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


#: A number of rounds, epochs or steps. A larger one is a typing error, and its training would never end.
Many = Annotated[int, Field(ge=1, le=1_000_000)]


class Training(BaseModel):
    """How the federation trains.

    Args:
        algorithm: the federated algorithm: how clients train, and what the server does with their updates.
        rounds: number of rounds.
        local_epochs: passes of each client over its examples in a round; not for FedSGD, which takes a single step.
        batch_size: examples per local step; null takes all examples of the client.
        lr: learning rate of the local SGD; for FedSGD, a factor of the server's step.
        momentum: momentum of the local SGD, reset to 0 in each round; not for FedSGD.
        worker_momentum: beta of ``m <- beta m + (1 - beta) u``. Each client keeps m across rounds, and sends m instead of u.
        server_lr: learning rate of the server.
        server_momentum: mu of ``v <- mu v + aggregate``. The server adds v to the model instead of the aggregate.
        local_steps: local steps of each client in a round, instead of epochs, each on a newly drawn batch; not for FedSGD.
        server_optimizer: optimizer that moves the model, instead of server momentum.
        dtype: type of the numbers in which clients train, the server aggregates and the model is evaluated. ``float64`` takes
            the same examples and the same first model as ``float32``; messages count 4 bytes for a parameter with either.
        first_model: file with the parameters from which the training starts, instead of drawn ones: ``.npz`` or
            ``.safetensors`` with the network's parameters by name, or ``.npy`` with all of them as one vector, such as a run's
            final model. Relative to the folder in which ``fedguard`` was started; ``FILE@sha256:DIGEST`` demands its content.
            Noise for privacy hides nothing that is in it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    algorithm: InstanceOf[FederatedAlgorithm] = FedAvg()
    rounds: Many = 30
    local_epochs: Many = 1
    batch_size: Annotated[int, Field(ge=1)] | None = 16
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    worker_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    server_lr: Annotated[float, Field(gt=0)] = 1.0
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    local_steps: Many | None = None
    server_optimizer: ServerOptimizer | None = None
    dtype: Literal["float32", "float64"] = "float32"
    first_model: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for one, other in (("local_steps", "local_epochs"), ("server_optimizer", "server_momentum")):
            if getattr(self, one) and getattr(self, other) != type(self).model_fields[other].default:
                raise ValueError(f"{one} replaces {other}; expected one of them; got both")
        return self

    def plan(self) -> LocalPlan:
        """What one honest client does in one round, apart from what depends on earlier rounds."""
        return self.algorithm.plan(self)

    @property
    def server_step(self) -> float:
        """Factor of the aggregate before the server adds it to the model."""
        return self.algorithm.server_step(self)
