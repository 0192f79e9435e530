"""Norm clipping at the server (Sun et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedguard.contracts import ROWS, Gram, Mixing, PositiveFloat, RuleContext


@dataclass(frozen=True, kw_only=True)
class Clip(Mixing):
    """Shortens updates that are longer than a bound, and leaves their direction.

    $y_i = x_i min(1, C / |x_i|)$.

    Args:
        bound: C, in the units of the updates; None takes the median length in the round, which fewer than $n/2$ malicious
            updates cannot inflate.
    """

    name = "clip"
    source = "Sun et al., Can You Really Backdoor Federated Learning?, 2019"
    needs = ROWS
    breakdown = "bounds what each malicious update adds; it removes none"
    cost = "O(nd): norms"
    keeps_rows = True
    grid: ClassVar = {"bound": (None, 0.01, 0.1, 1.0, 10.0)}

    bound: PositiveFloat | None = None

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        norms = gram.norms()
        bound = norms.quantile(0.5) if self.bound is None else self.bound
        # 0/0 is an update of zeros in a round with a median of 0: it stays as it is
        return (bound / norms).clamp(max=1).nan_to_num(nan=1.0).diag()
