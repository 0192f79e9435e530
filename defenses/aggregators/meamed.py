"""Mean around the median (Xie et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ROWS, CoordinateRule, RuleContext
from fedguard.kernels import sort_rows


def middle(ordered: Tensor) -> Tensor:
    """``[b]``: the median of each column of ``ordered`` (``[n, b]``, sorted); for even n the mean of the middle two."""
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def mean_of_nearest(ordered: Tensor, center: Tensor, f: int) -> Tensor:
    """``[b]``: the mean of the n - f values nearest to ``center`` (``[b]``) in each column of ``ordered`` (``[n, b]``, sorted).

    The n - f nearest values are adjacent, so exactly one of x_(i) and x_(n-f+i), for i = 1 ... f, is among them: the nearer
    one. If both are equally near, it is the one nearer to zero, and of -a and a half of each. So neither the order of the
    clients nor the sign of the updates decides a tie; always taking the smaller value would make the model drift.
    """
    kept = len(ordered) - f
    # n >= 2f + 1, so that the two do not overlap
    low, high = ordered[:f], ordered[kept:]
    below, above = center - low, high - center
    smaller = torch.where(low.abs() < high.abs(), low, torch.where(low.abs() > high.abs(), high, (low + high) / 2))
    nearer = torch.where(below < above, low, torch.where(below > above, high, smaller))
    return (ordered[f:kept].sum(0) + nearer.sum(0)) / kept


@dataclass(frozen=True, kw_only=True)
class Meamed(CoordinateRule):
    """The mean of the n - f values nearest to the median, in each coordinate.

    $R(x)_k = 1/(n - f)$ times the sum of the $n - f$ values $x_ik$ with the smallest $|x_ik - median_k|$. For $f = 0$ it is
    the mean. The source does not define ties: of two values equally near, the one nearer to zero counts.
    """

    name = "meamed"
    source = "Xie et al., Generalized Byzantine-tolerant SGD, 2018"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(nd log n): one sort of each column"

    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        ordered = sort_rows(block)
        return mean_of_nearest(ordered, middle(ordered), context.f)
