"""Gaussian noise (Blanchard et al., NeurIPS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class Gaussian(PoisonAttack):
    """Each malicious client sends noise of its own, N(0, scale^2) in every coordinate.

    $b_i ~ N(0, scale^2 I)$ for each malicious client i.

    Args:
        scale: standard deviation, in the units of the updates.
    """

    name = "gaussian"
    source = "Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017"
    needs = (Sight.NOTHING,)

    scale: PositiveFloat = 1.0

    def craft(self, view: PoisonView) -> Tensor:
        return torch.randn(view.f, view.dim, generator=view.rng.torch()) * self.scale
