"""Attacks on the clients' privacy: what a server can infer about the data from what it sees.

An attack returns what it claims: inputs, texts, labels, membership. It never sees the truth and never scores itself: the core
keeps the truth, and compares. What the server sees depends on architecture and protocol: each update, one sum, or the noisy
models that are published.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.sight import Needs, Sight, SightField, UndeclaredNeeds, View
from fedguard.contracts.tasks import Examples, LocalPlan
from fedguard.rng import Rng

#: Attacks on one vector: the victim's update if visible, else the mean in which it is hidden
ONE_VECTOR: Needs = (Sight.EACH_UPDATE | Sight.MODEL, Sight.SUM | Sight.MODEL)
#: The same, with clean data of the server's own if it has any
ONE_VECTOR_AND_ROOT: Needs = (*(sights | Sight.ROOT_DATA for sights in ONE_VECTOR), *ONE_VECTOR)


@dataclass(frozen=True)
class Reconstruction:
    """The inputs that an inversion claims: float32 ``[B, *shape]``, with labels int64 ``[B]`` if it found any.

    With ``mean`` the claim is the mean of all inputs, float32 ``[1, *shape]``, and is compared with the mean of the true ones.
    """

    x: Tensor
    y: Tensor | None = None
    mean: bool = False


@dataclass(frozen=True)
class Labels:
    """The labels that a label recovery claims: int64 ``[B]``, a multiset without order."""

    y: Tensor


@dataclass(frozen=True)
class Membership:
    """The scores of a membership inference: float64 ``[N]`` for the candidates, larger for "was trained on"."""

    scores: Tensor


@dataclass(frozen=True)
class Property:
    """The score of a property inference for the victim: larger for "has it"."""

    score: float


@dataclass(frozen=True)
class RecoveredText:
    """The tokens of texts, int64: texts ``[B, length]`` if their order was found, else each token once, ``[k]``.

    ``rank`` is the rank of the gradient that they were read from, which bounds how many can be read; None for other attacks.
    """

    tokens: Tensor
    rank: int | None = None


Inference = Reconstruction | Labels | Membership | Property | RecoveredText


class OneLogit(nn.Module):
    """A network with one logit z as a network with the two logits 0 and z, so that it has a class for each label.

    ``cross_entropy((0, z), y) = binary_cross_entropy_with_logits(z, y)``, gradients included. The parameters are those of the
    network, in their order.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """``[B, 2]``."""
        z: Tensor = self.network(x)
        return torch.cat([torch.zeros_like(z), z], dim=1)


class InferenceView(View):
    """What a server sees of the clients' data when it tries to infer more.

    The following fields are public, since the server sends them to clients. ``module`` is the network, with meaningless weights
    (as `OneLogit` if it has one logit) but for the frozen ones. ``predict`` applies it under any parameters. ``layers`` are the
    sizes of its trained parameter tensors, in the order of ``module.parameters()``. ``plan`` is the local training, and
    ``adapt`` knows the client transforms.

    ``counts`` are the claimed numbers of examples of each client behind `target`, or of its batch if each client takes one
    step. ``labels`` are the labels of these examples, if the server knows them. ``candidates`` are the examples to classify as
    members or not.

    ``noise`` is public too. It is the standard deviation in each coordinate of the noise that the protocol adds to the visible
    updates or aggregates. It excludes the clients' own DP-SGD, which ``plan.private`` describes. The view holds no truth, under
    any sight.
    """

    rng: Rng
    module: nn.Module
    predict: Callable[[Tensor, Tensor], Tensor]
    layers: tuple[int, ...]
    shape: tuple[int, ...]
    classes: int
    value_range: tuple[float, float]
    plan: LocalPlan
    counts: tuple[int, ...]
    #: The row of the attacked client in `updates`
    victim: int
    labels: Tensor | None
    candidates: Examples | None
    noise: float
    #: ``(dummy [..., d], observed [d])`` -> both in the form to compare, given the client transforms
    adapt: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    #: float32 ``[k, d]``: models as this federation would have trained them on each of k other sets of examples
    train: Callable[[Sequence[Examples], Rng], Tensor]
    models = SightField[Tensor](
        Sight.MODEL, "float32 [T + 1, d]: the model sent in each watched round, and that after the last"
    )
    updates = SightField[Tensor](Sight.EACH_UPDATE, "float32 [T, n, d]: what each client sent in the watched rounds")
    aggregates = SightField[Tensor](
        Sight.SUM, "float32 [T, d]: in each watched round the mean that hides the victim's update"
    )
    statistics = SightField[Tensor](
        Sight.STATISTICS,
        "float32 [T, 2, s]: in each watched round the running statistics that the victim received, and those it sent",
    )
    root = SightField[Examples](Sight.ROOT_DATA, "clean examples of the server's own")

    @property
    def model(self) -> Tensor:
        """float32 ``[d]``: the model that the clients of the last watched round started from."""
        return self.models[-2]

    @property
    def target(self) -> Tensor:
        """float32 ``[d]``: the victim's update in the last watched round, if visible; else the mean that hides it."""
        if Sight.EACH_UPDATE in self.granted:
            return self.updates[-1, self.victim]
        return self.aggregates[-1]

    @property
    def count(self) -> int:
        """B: the number of examples behind `target`."""
        return sum(self.counts)

    @property
    def steps(self) -> int:
        """Local steps of the client with the most examples."""
        if self.plan.private is not None:
            return self.plan.private_steps(self.plan.private.sample_rate)
        if self.plan.steps is not None:
            return self.plan.steps
        batch = self.plan.batch_size or max(self.counts)
        return (self.plan.epochs or 1) * -(-max(self.counts) // batch)

    @property
    def gradient(self) -> Tensor:
        """float32 ``[d]``: ``-target / (lr steps)``: the mean loss's gradient if each client took one step, else near it."""
        return -self.target / (self.plan.lr * self.steps)


class InferenceAttack(Algorithm):
    """An attack of the server on the clients' privacy. A complete one::

    class FromTheFirstLayer(InferenceAttack):
        name, goal, needs = "from_the_first_layer", "reconstruction", ONE_VECTOR

        def infer(self, view):
            outputs, inputs = next(view.module.parameters()).shape
            weight = view.gradient[: outputs * inputs].view(outputs, inputs)
            bias = view.gradient[outputs * inputs :][:outputs]
            return Reconstruction((weight / bias[:, None])[:1].view(1, *view.shape))
    """

    kind: ClassVar[str] = "inference"
    goal: ClassVar[Literal["reconstruction", "labels", "membership", "property", "text"]]
    needs: ClassVar[Needs] = UndeclaredNeeds(  # type: ignore[assignment]
        "Write needs = ONE_VECTOR, of fedguard.contracts, if it goes by one client's update, or the sum that hides it; "
        "(Sight.MODEL,) if by models alone."
    )
    #: round: it watches one round; training: all rounds; model: none, it uses the final model only
    watches: ClassVar[Literal["round", "training", "model"]] = "round"
    #: Whether the server is malicious: it sends another model in the watched round, see `tamper`
    active: ClassVar[bool] = False

    def check(self, view: InferenceView) -> None:
        """Raise `PreconditionError` if the attack cannot work on this network or training; called before anything runs.

        The view shows a watched round in which nothing has been sent yet.
        """

    def tamper(self, view: InferenceView) -> Tensor:
        """float32 ``[d]``: the model that the server sends in the watched round instead; ``view.models`` is ``[1, d]``."""
        return view.models[-1]

    @abstractmethod
    def infer(self, view: InferenceView) -> Inference:
        """Infer the clients' data from this view."""

    def holds(self, examples: Examples) -> bool:
        """For a property inference: whether these examples have the property. The core calls it to know the truth."""
        raise NotImplementedError
