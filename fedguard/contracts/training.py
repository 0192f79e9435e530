"""How the federation trains: the algorithm, one client's round, and the server's step."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from annotated_types import Ge, Gt, Lt
from pydantic import BaseModel, ConfigDict, Discriminator, Field, InstanceOf, Tag, model_validator
from torch import Tensor

from fedguard.contracts.federated import FedAvg, FederatedAlgorithm
from fedguard.contracts.tasks import LocalPlan

_STRICT: dict[str, str] = {"extra": "forbid"}

#: A number of rounds, epochs or steps. A larger one is a typing error, and its training would never end.
Many = Annotated[int, Field(ge=1, le=1_000_000)]

#: First and second moment of the aggregates, float32 ``[d]`` each
Moments = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class FedOpt:
    """A server that uses the aggregate u as a gradient: m <- beta1 m + (1 - beta1) u, and it moves by m / (sqrt(v) + tau).

    v starts at tau^2 in each coordinate, without bias correction. ``training.server_lr`` is the learning rate. Source: Reddi et
    al., Adaptive Federated Optimization, ICLR 2021.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    tau: Annotated[float, Gt(0)] = 1e-3

    def start(self, model: Tensor) -> Moments:
        """The moments before the first round, of the shape of ``model``."""
        return torch.zeros_like(model), torch.full_like(model, self.tau**2)

    def move(self, update: Tensor, moments: Moments) -> tuple[Tensor, Moments]:
        """The server's step for one aggregate (float32 ``[d]``), before ``server_lr``; and the new moments."""
        first, second = moments
        first = self.beta1 * first + (1 - self.beta1) * update
        second = self.second(second, update.square())
        return first / (second.sqrt() + self.tau), (first, second)

    @abstractmethod
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The new v from the old one and u^2."""


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
    """The name of a server optimizer; None if unknown."""
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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for one, other in (("local_steps", "local_epochs"), ("server_optimizer", "server_momentum")):
            if getattr(self, one) and getattr(self, other) != type(self).model_fields[other].default:
                raise ValueError(f"{one} stands instead of {other}; expected one of them; got both")
        return self

    def plan(self) -> LocalPlan:
        """What one honest client does in one round, apart from what depends on earlier rounds."""
        return self.algorithm.plan(self)

    @property
    def server_step(self) -> float:
        """Factor of the aggregate before the server adds it to the model."""
        return self.algorithm.server_step(self)
