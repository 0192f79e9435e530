"""Covariance-bound agnostic filter (Allouah et al., ICML 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import TIE, top_directions


@dataclass(frozen=True, kw_only=True)
class CAF(WeightRule):
    """Takes weight from what stands out in the direction of the largest spread, and keeps the most compact mean on the way.

    From $c_i = 1$, until $sum_i c_i <= n - 2f$: $mu = sum_i c_i x_i / (sum_i c_i)$, with $(lambda, v)$ the top eigenpair of
    the covariance under the weights c, then $c_i <- c_i (1 - tau_i / (max tau))$ with $tau_i = <v, x_i - mu>^2$. $R(x)$ is
    the $mu$ with the smallest $lambda$. For $f = 0$ it is the mean. The Gram matrix suffices: the covariance has the
    nonzero eigenvalues of the n by n matrix of $sqrt(c_i c_j) <x_i - mu, x_j - mu>$, up to the factor $sum_i c_i$. The
    maximum is over the updates that still have weight, so each step takes the whole weight of at least one update. The
    scores add up over all eigenvectors that share the largest eigenvalue, and among tied $mu$ the first is taken.
    """

    name = "caf"
    source = "Allouah et al., Towards Trustworthy Federated Learning with Untrusted Participants, ICML 2025"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix; a few times O(n^3)"

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        weight = torch.ones(gram.n, dtype=torch.float64)
        smallest, best = torch.inf, weight / gram.n
        while True:
            shares = weight / weight.sum()
            inner = gram.about(gram.affine(shares))
            roots = shares.sqrt()
            largest, vectors = top_directions(roots[:, None] * inner * roots)
            # Smaller by more than rounding: otherwise the order of the rows would choose between tied means
            if largest < smallest * (1 - TIE):
                smallest, best = largest, shares
            # <v, x_i - mu> but for the factor 1 / sqrt(lambda), which cancels in tau / max tau
            along = (inner @ (roots[:, None] * vectors)).square().sum(1) * (weight > 0)
            if along.max() > 0:
                weight = weight * (1 - along / along.max())
            # The slack is for a sum that is n - 2f but for rounding; without any spread there is no direction to filter by
            if weight.sum() <= (gram.n - 2 * context.f) * (1 + TIE) or along.max() <= 0:
                return best
