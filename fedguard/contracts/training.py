"""How the federation trains: the algorithm, what one client does in a round, and how the server moves the model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from pydantic import Discriminator, Tag
from torch import Tensor

from fedguard.contracts.tasks import LocalPlan

_STRICT: dict[str, str] = {"extra": "forbid"}

#: A number of rounds, passes or steps: what is more is a slip of the pen, and would never end.
Many = Annotated[int, Ge(1), Le(1_000_000)]

#: First and second moment of the aggregates, float32 ``[d]`` each.
Moments = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class FedOpt:
    """A server that takes the aggregate u for a gradient: m <- beta1 m + (1 - beta1) u, and it moves by m / (sqrt(v) + tau).

    v starts at tau^2 in each coordinate, and is not corrected for that. ``training.server_lr`` is the step.
    Source: Reddi et al., Adaptive Federated Optimization, ICLR 2021.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    tau: Annotated[float, Gt(0)] = 1e-3

    def start(self, model: Tensor) -> Moments:
        """The moments before the first round, of the shape of ``model``."""
        return torch.zeros_like(model), torch.full_like(model, self.tau**2)

    def move(self, update: Tensor, moments: Moments) -> tuple[Tensor, Moments]:
        """What the server moves by for one aggregate (float32 ``[d]``), before ``server_lr``; and the new moments."""
        first, second = moments
        first = self.beta1 * first + (1 - self.beta1) * update
        second = self.second(second, update.square())
        return first / (second.sqrt() + self.tau), (first, second)

    @abstractmethod
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The new v, of the old one and u^2."""


@dataclass(frozen=True, kw_only=True)
class Adam(FedOpt):
    """v <- beta2 v + (1 - beta2) u^2."""

    name: Literal["adam"] = "adam"
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True, kw_only=True)
class Yogi(FedOpt):
    """v <- v - (1 - beta2) u^2 sign(v - u^2)."""

    name: Literal["yogi"] = "yogi"
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True, kw_only=True)
class Adagrad(FedOpt):
    """v <- v + u^2."""

    name: Literal["adagrad"] = "adagrad"
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.0

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square


def _optimizer_form(value: Any) -> str | None:
    """Which server optimizer is meant; None for none that is known."""
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return name.capitalize() if name in ("adam", "yogi", "adagrad") else None


ServerOptimizer = Annotated[
    Annotated[Adam, Tag("Adam")] | Annotated[Yogi, Tag("Yogi")] | Annotated[Adagrad, Tag("Adagrad")],
    Discriminator(
        _optimizer_form,
        custom_error_type="optimizer",
        custom_error_message="{name: adam}, {name: yogi} or {name: adagrad}, with their parameters",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the federation trains.

    FedSGD: each client sends the negative gradient of one batch, and the server adds ``lr * server_lr`` times the aggregate.
    FedAvg: each client runs ``local_epochs`` of SGD with step ``lr`` and sends what it moved by; the server adds
    ``server_lr`` times the aggregate. FedProx, SCAFFOLD, FedNova, FedDyn and FedPer are FedAvg with one change each, see
    `fedguard.architectures.local`.

    Args:
        algorithm: how clients train and what the server does with it.
        rounds: number of rounds.
        local_epochs: passes of each client over its examples in a round; FedSGD makes none.
        local_steps: steps of each client in a round, instead of epochs, each on a batch drawn afresh; not for FedSGD.
        batch_size: examples per local step; None takes all of a client's.
        lr: step of the local SGD; of FedSGD, a factor of the server's step.
        momentum: of the local SGD, not for FedSGD; starts from 0 in each round.
        worker_momentum: beta of ``m <- beta m + (1 - beta) u``, kept by each client across rounds; it sends m instead of u.
        server_lr: the server's step.
        server_momentum: mu of ``v <- mu v + aggregate``; the server adds v instead of the aggregate.
        server_optimizer: moves the model instead of server momentum.
        mu: of FedProx: ``mu (w - start)`` is added to each gradient; 0.1 unless it is said.
        alpha: of FedDyn: the weight of its regulariser; 0.1 unless it is said.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    algorithm: Literal["fedavg", "fedsgd", "fedprox", "scaffold", "fednova", "feddyn", "fedper"] = "fedavg"
    rounds: Many = 30
    local_epochs: Many = 1
    batch_size: Annotated[int, Ge(1)] | None = 16
    lr: Annotated[float, Gt(0)] = 0.1
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    worker_momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    server_lr: Annotated[float, Gt(0)] = 1.0
    server_momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    local_steps: Many | None = None
    server_optimizer: ServerOptimizer | None = None
    mu: Annotated[float, Ge(0)] | None = None
    alpha: Annotated[float, Gt(0)] | None = None

    def plan(self) -> LocalPlan:
        """What one honest client does in one round, but for what depends on the rounds before."""
        if self.algorithm == "fedsgd":
            return LocalPlan(lr=1.0, batch_size=self.batch_size, steps=1)
        return LocalPlan(
            lr=self.lr,
            batch_size=self.batch_size,
            epochs=None if self.local_steps else self.local_epochs,
            steps=self.local_steps,
            momentum=self.momentum,
            prox=sum(self.own.values(), 0.0),
        )

    @property
    def own(self) -> dict[str, float]:
        """The parameter that this algorithm alone has, with its value; none for most."""
        if self.algorithm == "fedprox":
            return {"mu": 0.1 if self.mu is None else self.mu}
        if self.algorithm == "feddyn":
            return {"alpha": 0.1 if self.alpha is None else self.alpha}
        return {}

    @property
    def server_step(self) -> float:
        """What the server multiplies the aggregate by before it adds it to the model."""
        return self.server_lr * self.lr if self.algorithm == "fedsgd" else self.server_lr

    def faults(self) -> Iterator[str]:
        """What of these settings excludes each other: a line for each."""
        name = self.algorithm
        if name == "fedsgd" and (self.momentum or self.local_epochs != 1 or self.local_steps):
            yield (
                "fedsgd takes one step per round, so local_epochs and momentum do not apply; "
                "set worker_momentum for momentum across rounds"
            )
        if self.local_steps and self.local_epochs != 1:
            yield "local_steps stands instead of local_epochs; expected one of them; got both"
        for key, owner, value in (("mu", "fedprox", self.mu), ("alpha", "feddyn", self.alpha)):
            if value is not None and name != owner:
                yield f"{key} is a parameter of {owner}; got algorithm: {name}"
        if name == "scaffold" and self.local_steps is None:
            yield (
                "scaffold lets all clients take the same number of steps; got epochs. Set local_steps, such as local_steps: 10"
            )
        if name == "scaffold" and self.momentum:
            yield "scaffold takes what a client moved by for its mean gradient, which it is not with momentum; set momentum: 0"
        if name in ("scaffold", "feddyn") and self.worker_momentum:
            yield f"{name} keeps account of single updates, and worker_momentum sends a mean over rounds; leave it out"
        if name == "feddyn" and (self.server_lr != 1 or self.server_momentum or self.server_optimizer):
            yield "feddyn has a server step of its own; leave out server_lr, server_momentum and server_optimizer"
        if self.server_optimizer and self.server_momentum:
            yield "server_optimizer stands instead of server_momentum; expected one of them; got both"
