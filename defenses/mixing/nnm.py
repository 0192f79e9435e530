"""Nearest-neighbour mixing (Allouah et al., AISTATS 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, Mixing, RuleContext


@dataclass(frozen=True, kw_only=True)
class NNM(Mixing):
    """Replaces each update by the mean of its n - f nearest ones, itself included.

    y_i = (1/(n - f)) sum over the n - f nearest j of x_j. It makes the rule behind it robust to clients whose data
    differ, with the best order of kappa that is possible.
    """

    name = "nnm"
    source = "Allouah et al., Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity, AISTATS 2023"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix, shared with the rule behind it"

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        neighbours = gram.n - context.f
        nearest = gram.distances_squared().argsort(dim=1, stable=True)[:, :neighbours]
        return torch.zeros(gram.n, gram.n, dtype=torch.float64).scatter_(1, nearest, 1 / neighbours)

    def kappa_of(self, n: int, f: int, after: float) -> float:
        """8f / (n - f) * (kappa + 1) (the source's Lemma 1)."""
        return 8 * f / (n - f) * (after + 1)
