"""Nearest-neighbor mixing (Allouah et al., AISTATS 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import ROWS, Gram, Mixing, RuleContext
from fedguard.defenses.aggregators.ties import smallest_alike


@dataclass(frozen=True, kw_only=True)
class NNM(Mixing):
    """Replaces each update by the mean of its n - f nearest ones, itself included.

    $y_i = 1/(n - f)$ times the sum over the $n - f$ nearest j of $x_j$; updates that tie for the last places share them,
    which is the mean over all choices. It makes the rule behind it robust to heterogeneous data, with a kappa of the best
    possible order.
    """

    name = "nnm"
    source = "Allouah et al., Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity, AISTATS 2023"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix, shared with the rule behind it"

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        # Distances to itself are exactly 0, so an update is always among its own nearest
        return smallest_alike(gram.distances_squared(), gram.n - context.f)

    def kappa_of(self, n: int, f: int, after: float) -> float:
        """8f / (n - f) * (kappa + 1) (the source's Lemma 1)."""
        return 8 * f / (n - f) * (after + 1)
