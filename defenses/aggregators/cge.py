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
    last places share them. The source takes the sum, for which its step size is chosen; this is the mean. For $f = 0$ it
    is the mean of all. A short malicious update passes, whatever its direction.
    """

    name = "cge"
    source = "Gupta and Vaidya, Fault-Tolerance in Distributed Optimization: The Case of Redundancy, PODC 2020"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2, where the honest clients' costs are redundant"
    cost = "O(nd): norms"

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        # An exact comparison of lengths would let the order of the rows decide between, say, clipped updates of one length
        return smallest_alike(gram.norms(), gram.n - context.f)
