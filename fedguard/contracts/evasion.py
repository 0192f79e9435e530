"""Evasion: small changes of inputs at test time that make a trained model err."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.ranges import PositiveFloat
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class EvasionAttack(Algorithm):
    """An attack on a trained model through its inputs only: $max_z L(w, z, y)$ within $|z - x| <= eps$.

    It knows the model and the true classes. A suite names it under ``evaluation.evasion``, and it attacks each cell's final
    model.

    Args:
        norm: norm of the change: ``linf``, the largest change of any coordinate, or ``l2``.
        eps: the largest norm of the change, in widths of the range of values.
    """

    kind: ClassVar[str] = "evasion"

    norm: Literal["linf", "l2"] = "linf"
    eps: PositiveFloat = 0.1

    @abstractmethod
    def perturb(
        self, logits: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, value_range: tuple[float, float], rng: Rng
    ) -> Tensor:
        """The changed inputs, within `within`.

        Args:
            logits: float32 ``[B, *shape]`` -> float32 ``[B, classes]``; gradients flow to the inputs.
            x: float32 ``[B, *shape]``.
            y: int64 ``[B]``, the right classes.
            value_range: smallest and largest value that an input may take.
        """

    def radius(self, value_range: tuple[float, float]) -> float:
        """The largest norm of the change, in units of the inputs."""
        return self.eps * (value_range[1] - value_range[0])

    def within(self, z: Tensor, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        """``z`` projected to the ball around ``x``, and then to the range of values, which keeps it in the ball."""
        radius = self.radius(value_range)
        if self.norm == "linf":
            return (x + (z - x).clamp(-radius, radius)).clamp(*value_range)
        return (x + (z - x) * (radius / lengths(z - x).clamp(min=radius))).clamp(*value_range)

    def uphill(self, gradient: Tensor) -> Tensor:
        """The step of norm 1 along which a loss with this gradient grows fastest."""
        return gradient.sign() if self.norm == "linf" else gradient / lengths(gradient).clamp(min=1e-30)


def lengths(rows: Tensor) -> Tensor:
    """Euclidean length of each row of ``[B, *shape]``, as ``[B, 1, ...]``."""
    norms: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1)
    return norms.view(-1, *[1] * (rows.dim() - 1))
