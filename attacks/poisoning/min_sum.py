"""Min-Sum (Shejwalkar & Houmansadr, NDSS 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.directions import LongestStep
from fedguard.kernels import distances_from, length


@dataclass(frozen=True, kw_only=True)
class MinSum(LongestStep):
    """The longest step in a harmful direction whose distances to the benign updates add up to no more than theirs do.

    $b = mu + gamma * p$ with the largest $gamma$ such that $sum_i |b - x_i|^2 <= max_i sum_j |x_i - x_j|^2$. Both sums
    contain $sum_i |x_i - mu|^2$, plus the same multiple of $|b - mu|^2$ or $|x_i - mu|^2$. So $gamma * |p| = max_i |x_i -
    mu|$: the search needs no bisection, and the step has the same length in every direction.

    Args:
        direction: p: ``std`` $-sigma$, ``unit`` $-mu/|mu|$, ``sign`` $-sign(mu)$; ``chosen`` takes in each round the one
            that leaves the least progress $<R, mu> / |mu|^2$ to the rule R, or to the mean where the rule is not known.
    """

    name = "min_sum"
    source = "Shejwalkar & Houmansadr, Manipulating the Byzantine, NDSS 2021"

    def step(self, benign: Tensor, direction: Tensor) -> Tensor:
        own, reach = length(direction), float(distances_from(benign, benign.mean(0)).max()) if len(benign) else 0.0
        return direction * (reach / own) if own > 0 else torch.zeros_like(direction)
