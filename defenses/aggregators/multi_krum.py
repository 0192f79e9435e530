"""Multi-Krum (Blanchard et al., NeurIPS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, WeightRule
from fedguard.defenses.aggregators.krum import krum_scores
from fedguard.defenses.aggregators.ties import smallest_alike


@dataclass(frozen=True, kw_only=True)
class MultiKrum(WeightRule):
    """The mean of the n - f updates with the best Krum scores.

    $R(x) = 1/m$ times the sum over the $m = n - f$ smallest $s(i)$ of $x_i$; updates that tie for the last places share
    them. For $f = 0$ it is the mean.
    """

    name = "multi_krum"
    source = "Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017"
    needs = ROWS
    min_rows = (2, 1)
    proven_rows = (2, 3)
    breakdown = "f < n/2 - 1"
    cost = "O(n^2 d): one Gram matrix"

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return smallest_alike(krum_scores(gram, context.f), gram.n - context.f)
