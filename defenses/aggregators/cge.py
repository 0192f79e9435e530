"""Comparative gradient elimination (Gupta and Vaidya, PODC 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import smallest_alike


@dataclass(frozen=True, kw_only=True)
class CGE(WeightRule):
    """The mean of the n - f shortest updates.

    $R(x) = 1/(n - f)$ times the sum over the $n - f$ smallest $|x_i|$ of $x_i$; updates of equal length that tie for the
    last places share them. The source adds where this averages, its step size being set for that. For $f = 0$ it is the
    mean. A malicious update that is short passes, whatever its direction.
    """

    name = "cge"
    source = "Gupta and Vaidya, Fault-Tolerance in Distributed Optimization: The Case of Redundancy, PODC 2020"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2, where the honest clients' costs are redundant"
    cost = "O(nd): norms"

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return smallest_alike(gram.norms(), gram.n - context.f)
