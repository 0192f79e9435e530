"""Coordinate-wise median (Yin et al., ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import ROWS, CoordinateRule, RuleContext
from fedguard.kernels import sort_rows


@dataclass(frozen=True, kw_only=True)
class Median(CoordinateRule):
    """The median of each coordinate; for even n the mean of the middle two.

    $R(x)_k = median(x_1k, ..., x_nk)$.
    """

    name = "median"
    source = "Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(nd log n): one sort of each column"

    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        n = len(block)
        ordered = sort_rows(block)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2

    def kappa(self, n: int, f: int) -> float:
        """4 (1 + r)^2 with r = f / (n - 2f) (Allouah et al., AISTATS 2023)."""
        return 4 * (1 + f / (n - 2 * f)) ** 2
