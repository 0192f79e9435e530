"""Phocas: mean around the trimmed mean (Xie et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import ROWS, CoordinateRule, RuleContext
from fedguard.defenses.aggregators.meamed import mean_of_nearest
from fedguard.kernels import sort_rows


@dataclass(frozen=True, kw_only=True)
class Phocas(CoordinateRule):
    """The mean of the n - f values nearest to the trimmed mean, in each coordinate.

    $R(x)_k = 1/(n - f)$ times the sum of the $n - f$ values $x_ik$ with the smallest $|x_ik - t_k|$, where $t_k$ is the
    mean of the values without their f largest and f smallest. For $f = 0$ it is the mean. Of two values equally near, a tie
    that the source does not define, the one nearer to zero counts.
    """

    name = "phocas"
    source = "Xie et al., Phocas: Dimensional Byzantine-resilient Stochastic Gradient Descent, 2018"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(nd log n): one sort of each column"

    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        ordered = sort_rows(block)
        trimmed = ordered[context.f : len(ordered) - context.f].mean(0)
        return mean_of_nearest(ordered, trimmed, context.f)
