"""Min-Sum (Shejwalkar & Houmansadr, NDSS 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from fedguard.attacks.search import spread
from torch import Tensor

from fedguard.contracts import BENIGN_SAMPLE, PoisonAttack, PoisonView
from fedguard.kernels import distances_from, length


@dataclass(frozen=True, kw_only=True)
class MinSum(PoisonAttack):
    """The longest step in a harmful direction whose distances to the benign updates add up to no more than theirs do.

    b = mu + gamma * p with the largest gamma such that sum_i |b - x_i|^2 <= max_i sum_j |x_i - x_j|^2. Both sums hold
    the same sum_i |x_i - mu|^2 and beside it a multiple of |b - mu|^2 or |x_i - mu|^2, so gamma * |p| = max_i |x_i - mu|:
    no bisection is needed, and every direction takes a step of the same length.

    Args:
        direction: p: ``std`` -sigma, the source's best; ``unit`` -mu/|mu|; ``sign`` -sign(mu).
    """

    name = "min_sum"
    source = "Shejwalkar & Houmansadr, Manipulating the Byzantine, NDSS 2021"
    needs = BENIGN_SAMPLE

    direction: Literal["std", "unit", "sign"] = "std"

    def craft(self, view: PoisonView) -> Tensor:
        benign = view.benign
        mean = benign.mean(0)
        way = {"std": -spread(benign), "unit": -mean, "sign": -mean.sign()}[self.direction]
        own, reach = length(way), float(distances_from(benign, mean).max()) if len(benign) else 0.0
        step = way * (reach / own) if own > 0 else torch.zeros_like(way)
        return (mean + step).expand(view.f, -1)
