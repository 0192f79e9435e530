"""Adaptive clipping to a quantile of the lengths (Andrew et al., NeurIPS 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Fraction, Gram, Mixing, PositiveFloat, RuleContext, State


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipping(Mixing):
    """Shortens updates to a bound that moves, round by round, towards a quantile of their lengths.

    $y_i = x_i min(1, C / |x_i|)$, and after the round $C <- C exp(-eta (b - gamma))$ with b the share of the $|x_i|$ that
    were at most C. In the source each client clips its own update and sends its bit of b, so the server sees only sums. Here
    the server clips, and so it sees the rows: malicious clients cannot evade the bound, but count in b. With secure
    aggregation in groups, the lengths are the lengths of the group means. The source's noise on b is left out.

    Args:
        initial: C in the first round, in the units of the updates.
        quantile: $gamma$, the share of lengths that should be at most C, in [0, 1]; the source recommends the median.
        rate: $eta$, the rate at which ln C moves.
    """

    name = "adaptive_clipping"
    source = "Andrew et al., Differentially Private Learning with Adaptive Clipping, NeurIPS 2021"
    needs = ROWS
    breakdown = "bounds what each malicious update adds, at a level that f of n can shift; it removes none"
    cost = "O(nd): norms"
    keeps_rows = True
    grid: ClassVar = {"quantile": (0.3, 0.5, 0.7), "initial": (0.01, 0.1, 1.0)}

    initial: PositiveFloat = 0.1
    quantile: Fraction = 0.5
    rate: PositiveFloat = 0.2

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        # A zero update keeps its zeros: C / 0 is infinite, and 0/0 only if C has shrunk to 0
        return (self._read_bound(context) / gram.norms()).clamp(max=1).nan_to_num(nan=1.0).diag()

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        # By the bound that clipped this round: b is the share below C before C moves
        bound = self._read_bound(context)
        below = (gram.norms() <= bound).double().mean()
        return {"bound": bound * torch.exp(-self.rate * (below - self.quantile))}

    def _read_bound(self, context: RuleContext) -> Tensor:
        return context.state.get("bound", torch.tensor(self.initial, dtype=torch.float64))
