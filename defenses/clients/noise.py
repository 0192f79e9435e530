"""Gaussian noise on the update, without accounting (Sun et al. 2019; Zhu et al., NeurIPS 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ClientContext, ClientTransform, NonNegativeFloat


@dataclass(frozen=True, kw_only=True)
class UpdateNoise(ClientTransform):
    """Each honest client adds Gaussian noise to its update.

    $y = x + sigma z$ with $z ~ N(0, I)$; $sigma = scale$, or $scale |x| / sqrt(d)$ if ``relative``. The update's
    length is not bounded and nothing is accounted, so no epsilon follows. No formal guarantee. The best that an attacker can
    do is match the update as it was sent: least squares are maximum likelihood here.

    Args:
        scale: standard deviation of the noise on each coordinate; its unit follows from ``relative``.
        relative: whether ``scale`` is relative to the update's root mean square, or in the units of the updates.
    """

    name = "noise"
    source = (
        "Sun et al., Can You Really Backdoor Federated Learning?, arXiv:1911.07963 2019; "
        "Zhu et al., Deep Leakage from Gradients, NeurIPS 2019"
    )
    breakdown = "the breakdown point of the rule behind it"
    cost = "O(nd), at the clients"

    scale: NonNegativeFloat = 1.0
    relative: bool = True

    def apply(self, update: Tensor, context: ClientContext) -> Tensor:
        # In float64: float32 squares of small updates underflow, and the noise would vanish with them
        size = float(update.double().square().mean().sqrt()) if self.relative else 1.0
        return update + torch.randn(len(update), generator=context.rng.torch()) * (self.scale * size)
