"""The optimizers of a server, which move the model by the aggregate of a round."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Lt
from pydantic import Discriminator, Tag

if TYPE_CHECKING:
    from torch import Tensor

_STRICT: dict[str, str] = {"extra": "forbid"}

#: First and second moment of the aggregates, float32 ``[d]`` each
Moments: TypeAlias = "tuple[Tensor, Tensor]"


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
        return model.new_zeros(model.shape), model.new_full(model.shape, self.tau**2)

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
        return v - (1 - self.beta2) * square * (v - square).sign()


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
