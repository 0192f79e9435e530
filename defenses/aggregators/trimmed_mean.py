"""Coordinate-wise trimmed mean (Yin et al., ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import ROWS, CoordinateRule, RuleContext
from fedguard.kernels import sort_rows


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(CoordinateRule):
    """The mean of each coordinate without its f largest and f smallest values.

    $R(x)_k = 1/(n - 2f) sum_{i=f+1}^{n-f} x_{(i)k}$, with $x_{(1)k} <= ... <= x_{(n)k}$. For $f = 0$ it is the mean.
    """

    name = "trimmed_mean"
    source = "Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(nd log n): one sort of each column"

    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        return sort_rows(block)[context.f : len(block) - context.f].mean(0)

    def kappa(self, n: int, f: int) -> float:
        """6r (1 + r) with r = f / (n - 2f) (Allouah et al., AISTATS 2023)."""
        r = f / (n - 2 * f)
        return 6 * r * (1 + r)
