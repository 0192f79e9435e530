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

    $R(x) = mean_G$ with $G = {i : |x_i - x_c| <= T}$. S is the set of updates with more than n/2 updates within T of them,
    and the center c the one in S nearest to $mean_S$. First $T = 2 sigma sqrt(2 log(2n / delta) / B)$: honest means over B
    trajectories are within T of each other with probability $1 - delta$ if each trajectory's gradient is within $sigma$ of its
    expectation. If G then has fewer than n - f members, the test is repeated with $T = 2 sigma$. The results of tied centers
    are averaged.

    If S is empty even then, or without ``sigma``, the result is the mean of the n - f updates in the smallest ball around one
    of them; the source has no such case. The source's server then takes steps on its own trajectories, with reduced
    variance; they are no part of the rule.

    Args:
        sigma: bound on the deviation of one trajectory's gradient; null for the smallest ball.
        delta: the probability that the first test rejects an honest actor.
        trajectories: B, the number of trajectories that each update is the mean of.
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
            found = around_the_center(gram, distances, 2 * self.sigma * shorter, majority)
            if found is not None and int((found > 0).sum()) >= honest:
                return found
            found = around_the_center(gram, distances, 2 * self.sigma, majority)
            if found is not None:
                return found
        smallest_radius = float(distances.sort(dim=1).values[:, honest - 1].min())
        found = around_the_center(gram, distances, smallest_radius, honest)
        assert found is not None  # the radius is the distance within which one update has that many
        return found


def around_the_center(gram: Gram, distances: Tensor, radius: float, count: int) -> Tensor | None:
    """float64 ``[n]``: equal weights on the updates within the radius of the center; None if no update has ``count`` within it.

    The center is the update nearest to the mean of all updates that have ``count`` within the radius.
    """
    # The update that defines the smallest ball must be inside it, whatever its distance is rounded to
    near = distances <= radius * (1 + TIE)
    agree = near.sum(1) >= count
    if not agree.any():
        return None
    middle = torch.zeros(gram.rows, dtype=torch.float64)
    middle[: gram.n] = agree / agree.sum()
    # Only a majority's center counts: a malicious update may lie nearest to the mean without neighbors of its own
    away = torch.where(agree, gram.distances_to(middle), math.inf)
    members = near[smallest(away)].double()
    return (members / members.sum(1, keepdim=True)).mean(0)
