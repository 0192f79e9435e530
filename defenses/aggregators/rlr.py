"""Robust learning rate (Ozdayi et al., AAAI 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import ROWS, CoordinateRule, NonNegativeFloat, RuleContext


@dataclass(frozen=True, kw_only=True)
class RLR(CoordinateRule):
    """The mean, walked backwards in each coordinate in which too few updates agree on the sign.

    $R(x)_k = mean_i x_ik$ where $|sum_i sign(x_ik)| >= theta$, and $-mean_i x_ik$ elsewhere. The source weights updates by
    the claimed number of examples, which a malicious client may invent; here all updates count alike. The rule reverses
    malicious directions but bounds no length; `clip` before it does.

    Args:
        theta: the majority, in votes, that one sign needs. The source requires more votes than the malicious clients have,
            and finds the value by trial; None takes $f + 1$, the smallest such value, which reverses the fewest honest
            coordinates.
    """

    name = "rlr"
    source = "Ozdayi et al., Defending against Backdoors in Federated Learning with Robust Learning Rate, AAAI 2021"
    needs = ROWS
    estimates_mean = False
    min_rows = (2, 1)
    breakdown = "f < n/2 in direction; none in length"
    cost = "one pass"
    grid: ClassVar = {"theta": (None, 4.0, 6.0, 8.0)}

    theta: NonNegativeFloat | None = None

    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        theta = context.f + 1 if self.theta is None else self.theta
        mean = block.mean(0)
        return torch.where(block.sign().sum(0).abs() >= theta, mean, -mean)
