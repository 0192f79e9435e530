"""What is learned: examples, data sets, partitions, models, and the task that joins them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.statistics import LocalStatistics, StatisticsLayout
from fedguard.rng import Rng, Streams

#: The client number of the server's own clean data in a task
ROOT = -1

#: The label of a token of a text that is not asked for one: it adds to no loss, and counts in no accuracy
NOT_ASKED = -100

#: How the losses of a batch are reduced
Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class Examples:
    """Inputs float32 ``[N, *shape]`` with labels int64 ``[N]``; for texts perhaps one of each token, ``[N, length]``.

    ``client``, int64 ``[N]``, is the natural client of each example if the data have one: a writer, a speaker, a hospital.
    """

    x: Tensor
    y: Tensor
    client: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Tensor) -> Examples:
        return Examples(self.x[rows], self.y[rows], None if self.client is None else self.client[rows])

    def replace(self, **changes: Tensor) -> Examples:
        return replace(self, **changes)


@dataclass(frozen=True)
class Tokens:
    """What is special about inputs that are texts: whole numbers that name tokens, between which there is nothing.

    They are held in float32 like all inputs, which is exact below 2^24. A network with an `nn.Embedding` receives int64.

    Attributes:
        vocabulary: the number V of tokens, which are ``0 ... V-1``.
        padding: the number that fills up short texts, which a network must not read; None if texts are never filled up.
    """

    vocabulary: int
    padding: int | None = None


@dataclass(frozen=True)
class Dataset:
    """A data set with a fixed split into train and test.

    Attributes:
        train, test: the two parts; only the evaluation uses the test part.
        classes: number of classes C; labels are ``0 ... C-1``.
        value_range: smallest and largest value of an input, which triggers and inversions respect.
        tokens: of what inputs ``[length]`` consist that are texts; None for other data.
    """

    train: Examples
    test: Examples
    classes: int
    value_range: tuple[float, float]
    tokens: Tokens | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.x.shape[1:])


@dataclass(frozen=True)
class Preparation:
    """Origin of the statistics by which a source of data prepares every example: scale, range, vocabulary and classes.

    Neighboring data sets differ in one record of one client. If that record moves a mean, it changes the inputs of all clients,
    which no noise on sums hides. So no epsilon is given beside statistics of the records.

    Attributes:
        origin: ``given`` in the suite or the code, ``public``: from examples that need no protection, or ``records``: from the
            clients' own.
        what: what they prepare, a phrase for messages.
        remedy: remedy if an epsilon is wanted and the origin is ``records``, a sentence.
    """

    origin: Literal["given", "public", "records"]
    what: str
    remedy: str = ""

    @property
    def in_words(self) -> str:
        """``scale, range and classes, which are given``."""
        words = {"given": "which are given", "public": "which are public", "records": "from the clients' own records"}
        return f"{self.what}, {words[self.origin]}"


class Source(Algorithm):
    """What clients learn from: examples that they hold, or experience from acting."""

    kind: ClassVar[str] = "data"
    #: Whether it reads something of the user's own that may change from one run to the next
    outside: ClassVar[bool] = False

    @property
    @abstractmethod
    def preparation(self) -> Preparation:
        """Origin of the statistics by which it prepares examples."""


class Data(Source):
    """A source of a `Dataset`."""

    @property
    def preparation(self) -> Preparation:
        """Origin of the statistics by which it prepares examples; by default the records, unless a class declares otherwise."""
        return Preparation(
            "records",
            "what prepares the examples",
            f"If {self.name} takes nothing from the train examples, declare it: override Data.preparation.",
        )

    @property
    def record(self) -> str:
        """What an example is, shown beside an epsilon that hides one; '' if obvious: a row, an image."""
        return ""

    def describe(self) -> Iterable[str]:
        """Lines about the features if shapes do not describe them: one for each column of a table."""
        return ()

    @abstractmethod
    def load(self) -> Dataset:
        """The same data set at each call, with a fixed split."""


def select_trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """What training moves, by name, in the order of ``module.parameters()``: the parameters that require a gradient.

    The others are *frozen*: d does not count them, no update carries them, and all copies of a network share them.
    """
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


class Partition(Algorithm):
    """How the training examples are divided among the clients."""

    kind: ClassVar[str] = "partition"

    @abstractmethod
    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        """One array of example numbers for each client: disjoint, none empty. Some examples may be left out."""

    def label_sets(self, classes: int) -> tuple[tuple[int, ...], ...]:
        """The classes of each party, if parties have different tasks; empty if all have the same."""
        return ()


class Model(Algorithm):
    """A family of networks."""

    kind: ClassVar[str] = "model"
    #: Whether it has a memory from one step of an episode to the next; it then builds a `RecurrentNetwork`
    recurrent: ClassVar[bool] = False
    #: Whether it predicts the consequences of actions; it then builds a `WorldModel`
    imagines: ClassVar[bool] = False

    @property
    def by_example(self) -> bool:
        """Whether the loss of an example, and so its gradient, is independent of the rest of its batch."""
        return True

    @property
    def by_cross_entropy(self) -> bool:
        """Whether its loss is cross-entropy, for which engines and others use formulae of their own."""
        return type(self).loss is Model.loss

    def loss(self, logits: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
        """The loss that training minimizes: the mean, or the sum, over logits ``[B, classes]`` with labels int64 ``[B]``.

        With labels of tokens, ``[B, length]``, and logits ``[B, length, classes]`` the loss of a text is the mean over its
        tokens that are asked, whose label is not `NOT_ASKED`. So a text's gradient depends on no other text of the batch.
        """
        if y.dim() == 1:
            return cross_entropy(logits, y, reduction=reduction)
        losses = cross_entropy(logits.transpose(1, 2), y, ignore_index=NOT_ASKED, reduction="none").sum(1)
        losses = losses / (y != NOT_ASKED).sum(1).clamp(min=1)
        return losses.mean() if reduction == "mean" else losses.sum()

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A network from ``[B, *shape]`` to logits ``[B, classes]``, or ``[B, length, classes]`` for labels of tokens.

        Only parameters that require a gradient are trained (`select_trained`). It may normalize over batches by torch's
        layers (`fedguard.contracts.statistics`). No other buffer may change as it trains.
        """


@dataclass(frozen=True, kw_only=True)
class DPSGD:
    """How clients hide each example in their training: ``g = (sum_j min(1, C / |g_j|) g_j + N(0, (z C)^2 I)) / B``.

    Args:
        sample_rate: q, the probability with which each example is in the batch of a step.
        levels: (C, z) of each privacy level: the largest norm of one example's gradient, and the noise multiplier. Client i
            uses level i modulo their number.
    """

    sample_rate: float
    levels: tuple[tuple[float, float], ...]

    def level(self, client: int) -> tuple[float, float]:
        """(C, z) of one client."""
        return self.levels[client % len(self.levels)]


@dataclass(frozen=True)
class LocalPlan:
    """How one client trains in one round, by plain SGD.

    Exactly one of ``epochs`` and ``steps`` is set.

    Args:
        lr: learning rate; with ``steps=1`` and ``lr=1`` the update is the negative gradient (FedSGD).
        batch_size: examples per step; None takes all. A client with fewer examples uses all of them.
        epochs: passes over the client's examples, each in a new order; the last batch of a pass may be smaller.
        steps: local steps, each on a newly drawn batch without replacement.
        momentum: heavy-ball momentum ``v <- momentum * v + g``, starting from 0 in each round.
        adjust: ``(parameters, start, gradient) -> gradient``, all float32 ``[d]``: applied to each gradient for a loss other
            than the task's; ``start`` is the model from which the client started.
        project: ``(parameters, start) -> parameters``: applied after each step, for a constraint.
        prox: $mu$ of $mu (w - start)$, which is added to each gradient (FedProx, FedDyn).
        corrections: float32 ``[d]`` by client, added to each of its gradients (SCAFFOLD, FedDyn); 0 for the others.
        private: how it hides its examples. Then ``batch_size`` is B, whatever the size of a batch, and an epoch has ``round(1 /
            q)`` steps.
        shares: by client, the share of its examples to pass over, rounded down, but at least one, after which its time is up
            and it stops; 1 for the others. Not for private training.
        batches: by client, its examples per step instead of ``batch_size``. Not for private training.
        noise: root stream of the noise of private training, continued by the path of each client's stream; None for below that
            stream itself.
        secret: whether the batches of private training are drawn there too.
    """

    lr: float
    batch_size: int | None = None
    epochs: int | None = None
    steps: int | None = None
    momentum: float = 0.0
    adjust: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    project: Callable[[Tensor, Tensor], Tensor] | None = None
    prox: float = 0.0
    corrections: Mapping[int, Tensor] | None = None
    private: DPSGD | None = None
    shares: Mapping[int, float] | None = None
    batches: Mapping[int, int] | None = None
    noise: Rng | None = field(default=None, repr=False)
    secret: bool = False

    def of(self, client: int) -> LocalPlan:
        """The plan of this client, with its own batch size."""
        return self if self.batches is None else replace(self, batch_size=self.batches.get(client, self.batch_size))

    def reach(self, examples: int) -> float:
        """``lr`` times the number of steps of a client with this number of examples: the norm of its update in gradients."""
        batch = max(min(self.batch_size or examples, examples), 1)
        return self.lr * (self.steps or (self.epochs or 1) * -(-examples // batch))

    def batch_stream(self, stream: Rng) -> Rng:
        """The stream of a client's batches: its own, or one that cannot be derived from the seed."""
        if self.noise is None or self.private is None or not self.secret:
            return stream
        return self.noise.child(*stream.path)

    def share(self, client: int) -> float:
        """The share of its work after which a client stops."""
        return 1.0 if self.shares is None else self.shares.get(client, 1.0)

    @property
    def one_step(self) -> bool:
        """Whether a client takes a single step, as in FedSGD, and nothing else.

        Then its update is ``-lr`` times its gradient, and it sends exactly this. The difference of two models would lose the
        digits of the gradient that are below the rounding of the weights.
        """
        return self.steps == 1 and self.project is None

    def work(self, size: int) -> float:
        """Number of examples that a client with ``size`` of its own passes over."""
        if self.private is not None:
            return self.private_steps(self.private.sample_rate) * self.private.sample_rate * size
        batch = size if self.batch_size is None else min(self.batch_size, size)
        return self.steps * batch if self.steps is not None else (self.epochs or 1) * size

    def private_steps(self, sample_rate: float) -> int:
        """Steps of a round if each takes an example with probability ``sample_rate``: the same for all clients."""
        return self.steps or (self.epochs or 1) * max(1, round(1 / sample_rate))


@dataclass(frozen=True)
class Evaluation:
    """Performance of a model on the test examples.

    Attributes:
        loss: mean of the model's loss, in nats for cross-entropy; may be inf or nan for a destroyed model.
        accuracy: share of correctly classified examples, in [0, 1].
        class_accuracy: the same for each class; nan for a class without test examples. Empty where each token has a label:
            ``accuracy`` is then the share of the tokens that are asked.
        perplexity: where each token has a label: ``exp`` of the mean cross-entropy of the tokens that are asked.
        returns: for a model that acts, the return of each test episode. There are no examples then, and loss and accuracy are
            nan.
        elsewhere: where each client has a model of its own: the mean over clients of its accuracy on all test examples.
            ``accuracy`` is then the mean on each client's own labels (`fedguard.contracts.at_clients`).
        worst: the same: the accuracy on its own labels of the client with the lowest.
    """

    loss: float
    accuracy: float
    class_accuracy: tuple[float, ...]
    returns: tuple[float, ...] = ()
    elsewhere: float | None = None
    worst: float | None = None
    perplexity: float | None = None


class Task(ABC):
    """What the clients learn together. It trains them and evaluates the model; architectures know nothing else about it."""

    #: Number of parameters d.
    dim: int
    #: Number of examples of each client, in the order of their numbers
    sizes: tuple[int, ...]
    #: Number of classes C.
    classes: int
    #: Smallest and largest value of an input.
    value_range: tuple[float, float]
    #: Shape of one input.
    shape: tuple[int, ...]
    #: Sizes of the network's parameter tensors, in order; they add up to d.
    layers: tuple[int, ...]
    #: The network, with meaningless weights
    module: nn.Module
    #: The network's running statistics; none unless it normalizes over batches.
    statistics: StatisticsLayout = StatisticsLayout()

    @abstractmethod
    def initial_model(self, rng: Rng) -> Tensor:
        """float32 ``[d]``: the model before the first round: drawn, or the one of ``training.first_model``."""

    @abstractmethod
    def local_updates(
        self,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        out: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> Tensor:
        """Train these clients and write the update of each to the rows of ``out``, float32 ``[n, d]``.

        All start from ``model`` if it is float32 ``[d]``, and each from its own row if it is ``[n, d]``. Client i draws from
        ``rng.child("client", i)`` only, so its update does not depend on which other clients train. Clients in different rounds
        have a stream each. `ROOT` names the server's own data. Without ``statistics``, running statistics start at their
        initial values, and nobody learns what becomes of them.
        """

    def measure_statistics(self, model: Tensor, clients: Sequence[int], out: Tensor) -> None:
        """Write the statistics of one pass of these clients over their examples under ``model`` into ``out``, ``[n, s]``."""
        raise NotImplementedError

    @abstractmethod
    def evaluate(self, model: Tensor, statistics: Tensor | None = None) -> Evaluation:
        """Evaluate ``model`` (float32 ``[d]``) on the test examples.

        Here and below, a network with running statistics normalizes by ``statistics``, float32 ``[s]``; without them it
        normalizes by the batch, so that what it says of an example depends on the others in the batch.
        """

    @abstractmethod
    def logits(self, model: Tensor, x: Tensor, statistics: Tensor | None = None) -> Tensor:
        """``[B, C]`` for inputs ``[B, *shape]`` under ``model`` (float32 ``[d]``); gradients flow to both."""

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """The mean loss of logits ``[B, C]`` with labels int64 ``[B]`` that the clients minimize."""
        return cross_entropy(logits, y)

    def with_liars(self, report: Callable[..., Any], liars: Collection[int]) -> Task:
        """The same task with actors that report what an attack says: `PoisonAttack.report`. A task of examples asks nobody."""
        return self

    @abstractmethod
    def predictor(self, statistics: Tensor | None = None) -> Callable[[Tensor, Tensor], Tensor]:
        """`logits` to hand out: gradients flow, and nothing leads from it to the examples or to the trained model."""

    @abstractmethod
    def backdoor_success(self, model: Tensor, trigger: Trigger, target: int, statistics: Tensor | None = None) -> float:
        """Share of triggered test examples *of other classes* that are classified as ``target``.

        Examples that cannot carry the trigger (`Trigger.selects`) are left out.
        """

    @abstractmethod
    def examples(self, client: int) -> Examples:
        """The examples of one client."""

    @abstractmethod
    def examples_used(self, client: int, plan: LocalPlan, rng: Rng) -> Examples:
        """The examples on which a client trains in a round, each once; Poisson sampling may draw none.

        ``rng`` is the round's, as in `local_updates`.
        """

    @abstractmethod
    def with_examples(self, replaced: Mapping[int, Examples]) -> Task:
        """The same task with the data of some clients replaced."""


class Trigger(Algorithm):
    """What activates a backdoor: a change of the input, or a feature that some inputs have by nature."""

    kind: ClassVar[str] = "trigger"

    @abstractmethod
    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        """float32 ``[N, *shape]`` -> the same shape; the input is not changed."""

    def selects(self, examples: Examples, value_range: tuple[float, float]) -> Tensor:
        """bool ``[N]``: which inputs can carry it. All of them for a trigger that is added."""
        return torch.ones(len(examples), dtype=torch.bool)

    def part(self, position: int) -> Trigger:
        """The trigger on which the ``position``-th malicious client (from 0) trains; the whole one unless it is distributed."""
        return self
