"""Uniform random updates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class RandomUpdate(PoisonAttack):
    """Each malicious client sends a random update of its own, uniform on [-scale, scale] in every coordinate.

    Args:
        scale: the largest size of a value, in the units of the updates.
    """

    name = "random_update"
    source = "a baseline without one origin; cf. Li et al., RSA, AAAI 2019"
    needs = (Sight.NOTHING,)

    scale: PositiveFloat = 1.0

    def craft(self, view: PoisonView) -> Tensor:
        return (2 * torch.rand(view.f, view.dim, generator=view.rng.torch()) - 1) * self.scale
