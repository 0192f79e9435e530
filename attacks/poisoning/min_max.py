"""Min-Max (Shejwalkar & Houmansadr, NDSS 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.directions import LongestStep
from fedguard.kernels import gram_matrix, length


@dataclass(frozen=True, kw_only=True)
class MinMax(LongestStep):
    """The longest step in a harmful direction that stays as close to every benign update as they are to each other.

    $b = mu + gamma * p$ with the largest $gamma$ such that $max_i |b - x_i| <= max_ij |x_i - x_j|$. Each i bounds $gamma$
    by the larger root of $|p|^2 g^2 + 2 <p, mu - x_i> g + |mu - x_i|^2 = D^2$, so the search needs no bisection and has no
    upper limit.

    Args:
        direction: p: ``std`` $-sigma$, ``unit`` $-mu/|mu|$, ``sign`` $-sign(mu)$; ``chosen`` takes in each round the one
            that leaves the least progress $<R, mu> / |mu|^2$ to the rule R, or to the mean where the rule is not known.
    """

    name = "min_max"
    source = "Shejwalkar & Houmansadr, Manipulating the Byzantine, NDSS 2021"

    def step(self, benign: Tensor, direction: Tensor) -> Tensor:
        return _longest_step(benign, benign.mean(0), direction)


def _longest_step(benign: Tensor, mean: Tensor, direction: Tensor) -> Tensor:
    """gamma * p, for p of any length; 0 for p = 0."""
    reach = length(direction)
    if len(benign) < 2 or reach == 0:
        return torch.zeros_like(mean)
    unit = direction / reach
    n = len(benign)
    inner = gram_matrix(benign)[:n, :n]
    norms = inner.diagonal()
    diameter_squared = (norms[:, None] + norms[None, :] - 2 * inner).max()
    offset_squared = (norms - 2 * inner.mean(1) + inner.mean()).clamp(min=0)  # |mu - x_i|^2
    along = (mean @ unit).double() - (benign @ unit).double()  # p.(mu - x_i)
    # The discriminant is not negative but for rounding: no row is further from the mean than the diameter D
    gamma = (-along + (along**2 + diameter_squared - offset_squared).clamp(min=0).sqrt()).min()
    step: Tensor = unit * float(gamma)
    return step
