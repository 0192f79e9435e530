"""Blended injection (Chen et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import Share, Trigger
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class BlendedTrigger(Trigger):
    """A fixed pattern laid faintly over the whole input.

    $x' = (1 - alpha) x + alpha p$, with p uniform noise over the range of values, the same for every input. This is the
    random one of the source's patterns; it fits inputs of any shape.

    Args:
        alpha: weight of the pattern, in (0, 1].
        seed: determines the pattern.
    """

    name = "blended"
    source = "Chen et al., Targeted Backdoor Attacks on Deep Learning Systems Using Data Poisoning, 2017"

    alpha: Share = 0.2
    seed: int = 0

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        low, high = value_range
        draw = torch.rand(x.shape[1:], generator=Rng(self.seed).child("blended").torch(), dtype=torch.float32)
        pattern = (low + (high - low) * draw).to(x.dtype)
        return (1 - self.alpha) * x + self.alpha * pattern
