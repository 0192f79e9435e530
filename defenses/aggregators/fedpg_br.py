"""The filter of FedPG-BR, a test of variance (Fan et al., NeurIPS 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, PositiveFloat, PositiveInt, ProperFraction, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import TIE, smallest


@dataclass(frozen=True, kw_only=True)
class FedPGBR(WeightRule):
    r"""The mean of what lies as close to a center as honest policy gradients would.

    $R(x) = mean_G$ with $G = {i : |x_i - x_c| <= T}$. The center c is, of those with more than n/2 updates within T of them
    ($S$), the one nearest to $mean_S$. First $T = 2 sigma sqrt(2 log(2n / delta) / B)$, within which honest means over B
    trajectories lie with probability $1 - delta$ if each of them is within $sigma$ of its expectation; if G then has fewer
    than n - f members, all again with $T = 2 sigma$. Centers that tie are averaged.

    Where even that leaves S empty, and without ``sigma``, the result is the mean of the n - f updates in the smallest ball
    around one of them; this is ours. The source's server then takes steps of its own, on trajectories of its own and with less
    variance; that is no part of the rule.

    Args:
        sigma: by how much one trajectory's gradient may be off; null for the smallest ball.
        delta: the chance that the first test fails an honest actor.
        trajectories: B, of which each update is the mean.
    """

    name = "fedpg_br"
    source = "Fan et al., Fault-Tolerant Federated Reinforcement Learning with Theoretical Guarantee, NeurIPS 2021"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix"

    sigma: PositiveFloat | None = None
    delta: ProperFraction = 0.6
    trajectories: PositiveInt = 16

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        distances = gram.distances_squared().sqrt()
        majority, honest = gram.n // 2 + 1, gram.n - context.f
        if self.sigma is not None:
            shorter = math.sqrt(2 * math.log(2 * gram.n / self.delta) / self.trajectories)
            found = around_the_centre(gram, distances, 2 * self.sigma * shorter, majority)
            if found is not None and int((found > 0).sum()) >= honest:
                return found
            found = around_the_centre(gram, distances, 2 * self.sigma, majority)
            if found is not None:
                return found
        smallest_radius = float(distances.sort(dim=1).values[:, honest - 1].min())
        found = around_the_centre(gram, distances, smallest_radius, honest)
        assert found is not None  # who has as many within it
        return found


def around_the_centre(gram: Gram, distances: Tensor, radius: float, count: int) -> Tensor | None:
    """float64 ``[n]``: equal weights on what is within the radius of the center; None where nobody has ``count`` so near.

    The center is, of those who have, the one nearest to their mean.
    """
    near = distances <= radius * (1 + TIE)
    agree = near.sum(1) >= count
    if not agree.any():
        return None
    middle = torch.zeros(gram.rows, dtype=torch.float64)
    middle[: gram.n] = agree / agree.sum()
    away = torch.where(agree, gram.distances_to(middle), math.inf)
    members = near[smallest(away)].double()
    return (members / members.sum(1, keepdim=True)).mean(0)
