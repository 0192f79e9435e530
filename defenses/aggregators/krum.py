"""Krum (Blanchard et al., NeurIPS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import smallest


def krum_scores(gram: Gram, f: int) -> Tensor:
    """float64 ``[n]``: for each update the sum of squared distances to its n - f - 2 nearest others.

    Below the source's n >= 2f + 3 that number can reach 0, which would score every update alike; one neighbor is kept.
    """
    neighbors = max(gram.n - f - 2, 1)
    ordered = gram.distances_squared().sort(dim=1).values  # column 0 is the distance to itself
    return ordered[:, 1 : 1 + neighbors].sum(1)


@dataclass(frozen=True, kw_only=True)
class Krum(WeightRule):
    """The one update that lies closest to its neighbors.

    $R(x) = x_i$ with the smallest score $s(i)$, the sum over the $n - f - 2$ nearest j of $|x_i - x_j|^2$. The source
    does not define ties, which are common behind nnm. Here they go to the update closest to all others, and if updates tie
    in this too, to the mean of the tied updates. So the order of the clients never matters.
    """

    name = "krum"
    source = "Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017"
    needs = ROWS
    min_rows = (2, 1)
    proven_rows = (2, 3)
    breakdown = "f < n/2 - 1"
    cost = "O(n^2 d): one Gram matrix"

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        best = smallest(krum_scores(gram, context.f))
        best &= smallest(gram.distances_squared().sum(1).masked_fill(~best, torch.inf))
        return best.double() / best.sum()

    def kappa(self, n: int, f: int) -> float | None:
        """6 (n - f) / (n - 2f - 1) for n >= 2f + 2.

        Allouah et al. (AISTATS 2023) have 6 (n - f) / (n - 2f), for a Krum with n - f - 1 neighbors. The source and this rule
        take n - f - 2. Of these and the chosen update itself at least n - 2f - 1 are honest, over which the same proof
        averages.
        """
        return 6 * (n - f) / (n - 2 * f - 1) if n >= 2 * f + 2 else None
