"""Zeno (Xie et al., ICML 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, NonNegativeFloat, RuleContext, Sight, WeightRule
from fedguard.defenses.aggregators.ties import smallest_alike


@dataclass(frozen=True, kw_only=True)
class Zeno(WeightRule):
    """The mean of the n - f updates that lower the loss on the server's clean data the most.

    $R(x) = 1/(n - f)$ times the sum over the $n - f$ largest $s_i$ of $x_i$, $s_i = L(w) - L(w + eta x_i) - rho |x_i|^2$,
    with $eta$ the server's step and L the loss on all its clean examples, where the source draws some in each round.
    Updates with scores that tie for the last places share them; an update after which the loss is not a number is last.

    Args:
        rho: weight of the squared length, in nats per squared unit of the updates. Small by default, so that the loss
            decides, and the length only between updates of about equal loss.
    """

    name = "zeno"
    source = "Xie et al., Zeno: Distributed Stochastic Gradient Descent with Suspicion-based Fault-tolerance, ICML 2019"
    needs = (Sight.EACH_UPDATE | Sight.ROOT_DATA | Sight.MODEL,)
    by_blocks = False
    min_rows = (1, 1)
    breakdown = "f < n, if the root data are clean and representative"
    cost = "O(nd): the loss on the root data, n + 1 times"
    grid: ClassVar = {"rho": (0.0, 5e-4, 5e-3, 5e-2)}

    rho: NonNegativeFloat = 5e-4

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        before = context.root_loss(context.model)
        after = [context.root_loss(context.model + context.server_lr * update) for update in gram.vectors]
        # Infinite scores tie, NaN never does: without a finite loss anywhere the round is the mean, not 0/0
        rise = torch.tensor([loss - before for loss in after], dtype=torch.float64).nan_to_num(
            nan=math.inf, posinf=math.inf
        )
        return smallest_alike(rise + self.rho * gram.norms().square(), gram.n - context.f)
