"""Gaussian noise (Blanchard et al., NeurIPS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, Sight
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class Gaussian(PoisonAttack):
    """Each colluder sends noise of its own, N(0, scale^2) in every coordinate.

    Args:
        scale: standard deviation, in the units of the updates.
    """

    name = "gaussian"
    source = "Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017"
    needs = (Sight.NOTHING,)

    scale: float = 1.0

    def __post_init__(self) -> None:
        require(self.scale > 0, f"gaussian: scale: expected more than 0; got {self.scale}.")

    def craft(self, view: PoisonView) -> Tensor:
        return torch.randn(view.f, view.dim, generator=view.rng.torch()) * self.scale
