"""Adaptive robust clipping (Allouah et al., ICLR 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import ROWS, Gram, Mixing, RuleContext


@dataclass(frozen=True, kw_only=True)
class ARC(Mixing):
    """Shortens the longest updates to the length of the next one.

    $y_i = x_i min(1, C / |x_i|)$ with C the $(k + 1)$-th largest length and $k = floor(2 (f/n) (n - f))$. The bound follows
    the updates and needs no setting; for $f = 0$ nothing is shortened.
    """

    name = "arc"
    source = "Allouah et al., Adaptive Gradient Clipping for Robust Federated Learning, ICLR 2025"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2, and the breakdown point of the rule behind it"
    cost = "O(nd): norms"
    keeps_rows = True

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        norms = gram.norms()
        # In whole numbers: the floor of a rounded product could be one too small
        clipped = 2 * context.f * (gram.n - context.f) // gram.n
        bound = norms.sort(descending=True).values[clipped]
        return (bound / norms).clamp(max=1).nan_to_num(nan=1.0).diag()

    def kappa_of(self, n: int, f: int, after: float) -> float:
        """kappa + 2f / (n - 2f) (the source)."""
        return after + 2 * f / (n - 2 * f)
