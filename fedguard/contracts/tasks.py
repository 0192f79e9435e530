"""What is learned: examples, data sets, partitions, models, and the task that joins them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedguard.contracts.algorithm import Algorithm
from fedguard.rng import Rng, Streams

#: The client number under which a task keeps the server's own clean data.
ROOT = -1

#: What becomes of the losses of a batch.
Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class Examples:
    """Inputs float32 ``[N, *shape]`` with labels int64 ``[N]``.

    ``client``, int64 ``[N]``, says which natural client each is from, where the data know: a writer, a speaker, a hospital.
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
class Dataset:
    """A data set, split once and for all into train and test.

    Attributes:
        train, test: the two parts; the test part reaches nobody but the evaluation.
        classes: number of classes C; labels are ``0 ... C-1``.
        value_range: smallest and largest value an input may take, which triggers and inversions respect.
        characters: whether inputs are texts: characters by number, with nothing between one and the next.
    """

    train: Examples
    test: Examples
    classes: int
    value_range: tuple[float, float]
    characters: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.x.shape[1:])


@dataclass(frozen=True)
class Preparation:
    """From where a source of data knows scale, range, vocabulary and classes, by which it prepares every example.

    Neighboring data differ in one record of one client. If that record moves a mean, it changes the inputs of all clients,
    which no noise on sums hides; so there is no epsilon beside what comes from the records.

    Attributes:
        origin: ``given`` in the suite or the code, ``public``: from examples that need no protection, or ``records``: from
            the clients' own.
        what: is prepared by it, a phrase for messages.
        mend: what to do where an epsilon is wanted and the origin is ``records``, a sentence.
    """

    origin: Literal["given", "public", "records"]
    what: str
    mend: str = ""

    @property
    def in_words(self) -> str:
        """``scale, range and classes, which are given``."""
        words = {"given": "which are given", "public": "which are public", "records": "from the clients' own records"}
        return f"{self.what}, {words[self.origin]}"


class Source(Algorithm):
    """From what clients learn: examples that they hold, or what they meet with as they act."""

    kind: ClassVar[str] = "data"
    #: Whether it reads what is the user's own, and may change from one run to the next.
    outside: ClassVar[bool] = False

    @property
    @abstractmethod
    def preparation(self) -> Preparation:
        """From where it knows what it prepares examples by."""


class Data(Source):
    """A source of a `Dataset`."""

    @property
    def preparation(self) -> Preparation:
        """From where it knows what it prepares examples by. Who does not say it is taken to look at the records."""
        return Preparation(
            "records",
            "what prepares the examples",
            f"If {self.name} takes nothing from the train examples, declare it: override Data.preparation.",
        )

    @property
    def record(self) -> str:
        """What an example is, beside an epsilon that hides one; '' where that is plain: a row, an image."""
        return ""

    def describe(self) -> Iterable[str]:
        """Lines on what is made of the data, where shapes do not tell: one for each column of a table."""
        return ()

    @abstractmethod
    def load(self) -> Dataset:
        """The same data set at each call, with a fixed split."""


class Partition(Algorithm):
    """A way to deal the training examples out to clients."""

    kind: ClassVar[str] = "partition"

    @abstractmethod
    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        """One array of example numbers for each client: disjoint, none empty. Some examples may be left to nobody."""

    def label_sets(self, classes: int) -> tuple[tuple[int, ...], ...]:
        """The classes of each party, where parties have tasks of their own; empty where all have the same."""
        return ()


class Model(Algorithm):
    """A family of networks."""

    kind: ClassVar[str] = "model"
    #: Whether it remembers from one step of an episode to the next; what it builds is then a `RecurrentNetwork`.
    recurrent: ClassVar[bool] = False
    #: Whether it foresees what follows from actions; what it builds is then a `WorldModel`.
    imagines: ClassVar[bool] = False

    @property
    def by_example(self) -> bool:
        """Whether the loss of an example, and so its gradient, is the same whatever else is in its batch."""
        return True

    @property
    def by_cross_entropy(self) -> bool:
        """Whether its loss is cross-entropy, which engines and others have formulae of their own for."""
        return type(self).loss is Model.loss

    def loss(self, logits: Tensor, y: Tensor, reduction: Reduction = "mean") -> Tensor:
        """What training makes small: the mean, or the sum, over logits ``[B, classes]`` with labels int64 ``[B]``."""
        return cross_entropy(logits, y, reduction=reduction)

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A network that takes ``[B, *shape]`` to logits ``[B, classes]``, without buffers (no BatchNorm)."""


@dataclass(frozen=True, kw_only=True)
class DPSGD:
    """How clients hide each of their examples as they train: ``g = (sum_j min(1, C / |g_j|) g_j + N(0, (z C)^2 I)) / B``.

    Args:
        sample_rate: q, the probability with which each example is in the batch of a step.
        levels: (C, z) of each privacy level: the largest length of one example's gradient, and the noise over it. Client i
            takes number i modulo their number.
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
        lr: step size; with ``steps=1`` and ``lr=1`` the update is the negative gradient (FedSGD).
        batch_size: examples per step; None takes all. A smaller client uses what it has.
        epochs: passes over the client's examples, each in a fresh order; the last batch of a pass may be smaller.
        steps: steps, each on a batch drawn afresh without replacement.
        momentum: heavy-ball momentum ``v <- momentum * v + g``, starting from 0 in each round.
        adjust: ``(parameters, start, gradient) -> gradient``, all float32 ``[d]``: what a client does to each gradient, for
            another loss than its task's; ``start`` is the model from which the client started.
        project: ``(parameters, start) -> parameters``: what it does after each step, for a constraint.
        prox: $mu$ of $mu (w - start)$, which is added to each gradient (FedProx, FedDyn).
        corrections: by client, float32 ``[d]``, what is added to each of its gradients (SCAFFOLD, FedDyn); 0 for the others.
        private: how it hides its examples; then ``batch_size`` is B, whatever a batch holds, and an epoch has
            ``round(1 / q)`` steps.
        shares: by client, the share of all this after which it stops, as time is up: of the examples that it would pass
            over, rounded down, but one; 1 for the others. Not for private training.
        batches: by client, its examples per step in place of ``batch_size``. Not for private training.
        noise: below it the noise of private training is drawn, along the path of each client's stream; None for below that
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
        """How this client trains, with the size of its batches."""
        return self if self.batches is None else replace(self, batch_size=self.batches.get(client, self.batch_size))

    def reach(self, examples: int) -> float:
        """``lr`` times the number of steps of a client of so many examples: how much longer its update is than a gradient."""
        batch = max(min(self.batch_size or examples, examples), 1)
        return self.lr * (self.steps or (self.epochs or 1) * -(-examples // batch))

    def noise_stream(self, stream: Rng) -> Rng:
        """Where a client draws its noise that draws its batches from ``stream``."""
        return (stream if self.noise is None else self.noise.child(*stream.path)).child("noise")

    def batch_stream(self, stream: Rng) -> Rng:
        """Where a client draws its batches: from its stream, or where nobody who knows the seed can follow."""
        if self.noise is None or self.private is None or not self.secret:
            return stream
        return self.noise.child(*stream.path)

    def share(self, client: int) -> float:
        """The share of its work after which a client stops."""
        return 1.0 if self.shares is None else self.shares.get(client, 1.0)

    @property
    def one_step(self) -> bool:
        """Whether a client takes a single step, as in FedSGD, and nothing else.

        Then what it moves by is ``-lr`` times its gradient, and that is what it sends: the difference of two models would
        have lost the digits in which the gradient is below the weights' own rounding.
        """
        return self.steps == 1 and self.project is None

    def work(self, size: int) -> float:
        """How many examples a client with ``size`` of its own passes over."""
        if self.private is not None:
            return self.private_steps(self.private.sample_rate) * self.private.sample_rate * size
        batch = size if self.batch_size is None else min(self.batch_size, size)
        return self.steps * batch if self.steps is not None else (self.epochs or 1) * size

    def private_steps(self, sample_rate: float) -> int:
        """The steps of a round when each takes an example with probability ``sample_rate``: the same for all clients."""
        return self.steps or (self.epochs or 1) * max(1, round(1 / sample_rate))


@dataclass(frozen=True)
class Evaluation:
    """How a model does on the test examples.

    Attributes:
        loss: the mean of the model's loss, in nats where it is cross-entropy; may be inf or nan for a destroyed model.
        accuracy: share of examples classified right, in [0, 1].
        class_accuracy: the same for each class; nan for a class without test examples.
        returns: of a model that acts, the return of each test episode; then there are no examples, and loss and accuracy are
            nan.
    """

    loss: float
    accuracy: float
    class_accuracy: tuple[float, ...]
    returns: tuple[float, ...] = ()


class Task(ABC):
    """What the clients learn together: it trains them and evaluates the model; architectures know no more about it."""

    #: Number of parameters d.
    dim: int
    #: Number of examples of each client, in the order of their numbers.
    sizes: tuple[int, ...]
    #: Number of classes C.
    classes: int
    #: Smallest and largest value of an input.
    value_range: tuple[float, float]
    #: Shape of one input.
    shape: tuple[int, ...]
    #: Sizes of the network's parameter tensors, in order; they add up to d.
    layers: tuple[int, ...]
    #: The network, with weights that mean nothing.
    module: nn.Module

    @abstractmethod
    def initial_model(self, rng: Rng) -> Tensor:
        """float32 ``[d]``: the model before the first round."""

    @abstractmethod
    def local_updates(
        self, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Streams, out: Tensor
    ) -> Tensor:
        """Train these clients and write what each moved by into the rows of ``out``, float32 ``[n, d]``.

        All start from ``model`` where it is float32 ``[d]``, and each from its own row where it is ``[n, d]``.

        Client i draws from ``rng.child("client", i)`` alone, so its update does not depend on who else trains. Clients that are
        in different rounds of their own have a stream each.
        `ROOT` names the server's own data.
        """

    @abstractmethod
    def evaluate(self, model: Tensor) -> Evaluation:
        """Evaluate ``model`` (float32 ``[d]``) on the test examples."""

    @abstractmethod
    def logits(self, model: Tensor, x: Tensor) -> Tensor:
        """``[B, C]`` for inputs ``[B, *shape]`` under ``model`` (float32 ``[d]``); gradients flow to both."""

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """The mean loss of logits ``[B, C]`` with labels int64 ``[B]``, by which the clients train."""
        return cross_entropy(logits, y)

    def with_lies(self, lies: Mapping[str, Mapping[int, Callable[..., Any]]]) -> Task:
        """The same task where some actors say something else than what is.

        Args:
            lies: what becomes of the truth, by the method of `PoisonAttack` that says so (``rewards``, ``behaviour``,
                ``priorities``, ``sends``) and by client.
        """
        return self

    @abstractmethod
    def predictor(self) -> Callable[[Tensor, Tensor], Tensor]:
        """`logits` for other hands: gradients flow, and no way leads from it to the examples or to what was trained."""

    @abstractmethod
    def backdoor_success(self, model: Tensor, trigger: Trigger, target: int) -> float:
        """Share of triggered test examples *of other classes* that are classified as ``target``.

        Examples that cannot carry the trigger (`Trigger.selects`) are left out.
        """

    @abstractmethod
    def examples(self, client: int) -> Examples:
        """The examples of one client."""

    @abstractmethod
    def examples_used(self, client: int, plan: LocalPlan, rng: Rng) -> Examples:
        """Those on which a client trains in a round, each once; perhaps none where batches are drawn by Poisson sampling.

        ``rng`` is the round's, as in `local_updates`.
        """

    @abstractmethod
    def with_examples(self, replaced: Mapping[int, Examples]) -> Task:
        """The same task with the data of some clients replaced."""


class Trigger(Algorithm):
    """What in the input a backdoor answers to: a change that is made to it, or a feature that some inputs have by nature."""

    kind: ClassVar[str] = "trigger"

    @abstractmethod
    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        """float32 ``[N, *shape]`` -> the same shape, the input left as it was."""

    def selects(self, examples: Examples, value_range: tuple[float, float]) -> Tensor:
        """bool ``[N]``: which of these can carry it. A trigger that is added asks nothing of the input: all of them."""
        return torch.ones(len(examples), dtype=torch.bool)

    def part(self, position: int) -> Trigger:
        """What the ``position``-th malicious client (from 0) trains on; the whole, unless the trigger is distributed."""
        return self
