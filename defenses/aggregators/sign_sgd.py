"""signSGD with majority vote (Bernstein et al., ICLR 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import ROWS, MatrixRule, PositiveFloat, RuleContext
from fedguard.kernels import walk


@dataclass(frozen=True, kw_only=True)
class SignSGD(MatrixRule):
    """Each update votes on the sign of each coordinate; the majority's signs, all of one size, are the result.

    $R(x)_k = scale * sign(sum_i sign(x_ik))$, and 0 where the vote is a tie.

    Args:
        scale: the size of every coordinate, in the units of the updates. The source makes it part of its learning rate of
            about 1e-4. Here the server's step is the same for all rules, so a scale of 1 would be far too large. None takes
            the median over the updates of their mean magnitude $|x_i|_1 / d$, the factor that brings $sign(x)$ closest to x
            (Karimireddy et al., ICML 2019). It follows the scale of the updates as they shrink, and fewer than $n/2$
            malicious updates cannot inflate it.
    """

    name = "sign_sgd"
    source = "Bernstein et al., signSGD with Majority Vote is Communication Efficient and Fault Tolerant, ICLR 2019"
    needs = ROWS
    estimates_mean = False
    min_rows = (2, 1)
    breakdown = "f < n/2, for unimodal and symmetric gradient noise"
    cost = "O(nd): two passes"
    by_blocks = True
    grid: ClassVar = {"scale": (None, 1e-4, 1e-3, 1e-2)}

    scale: PositiveFloat | None = None

    def combine(self, updates: Tensor, context: RuleContext) -> Tensor:
        n, d = updates.shape
        vote = torch.empty(d, dtype=updates.dtype)
        lengths = torch.zeros(n, dtype=torch.float64)
        for block in walk(updates):
            # Sums of signs are exact in float32, so a tied vote is exactly 0
            vote[block] = updates[:, block].sign().sum(0).sign()
            lengths += updates[:, block].abs().sum(1, dtype=torch.float64)
        return vote * (lengths.quantile(0.5) / d if self.scale is None else self.scale)
