"""Geometric median by smoothed Weiszfeld steps (Pillutla et al., IEEE TSP 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, WeightRule
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(WeightRule):
    """The point with the smallest sum of distances to the updates (RFA).

    R(x) = argmin_z sum_i |z - x_i|, from z = 0 by z <- sum_i w_i x_i / sum_i w_i with w_i = 1 / max(nu, |z - x_i|).
    In Gram space a step costs O(n^2), so the default runs until z rests; the source stops after 3 or 4 steps, since
    there each one costs a round of secure aggregation.

    Args:
        steps: largest number of steps.
        nu: floor of the distances, in the units of the updates.
    """

    name = "geometric_median"
    source = "Pillutla et al., Robust Aggregation for Federated Learning, IEEE Transactions on Signal Processing 2022"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix"

    steps: int = 100
    nu: float = 1e-6

    def __post_init__(self) -> None:
        require(self.steps >= 1, f"geometric_median: steps: expected at least 1; got {self.steps}.")
        require(self.nu > 0, f"geometric_median: nu: expected more than 0; got {self.nu}.")

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        inner = gram.inner[: gram.n, : gram.n]
        distances, shares = gram.norms(), torch.zeros(gram.n, dtype=torch.float64)
        for _ in range(self.steps):
            closeness = 1 / distances.clamp(min=self.nu)
            previous, shares = shares, closeness / closeness.sum()
            if (shares - previous).abs().max() < 1e-7:
                break
            towards = inner @ shares
            distances = (inner.diagonal() - 2 * towards + shares @ towards).clamp(min=0).sqrt()
        return shares

    def kappa(self, n: int, f: int) -> float:
        """4 (1 + r)^2 with r = f / (n - 2f) (Allouah et al., AISTATS 2023)."""
        return 4 * (1 + f / (n - 2 * f)) ** 2
