"""Mean: federated averaging with equal weights (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import Gram, RuleContext, Sight, WeightRule


@dataclass(frozen=True, kw_only=True)
class Mean(WeightRule):
    """The average of the updates; one malicious client can move it anywhere.

    $R(x) = (1/n) sum_i x_i$. It needs only the sum, and so runs under secure aggregation. At a node without a server it
    is $sum_j W_ij x_j$, with the weights of the graph.
    """

    name = "mean"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"
    needs = (Sight.SUM,)
    breakdown = "0: one update decides"
    cost = "one pass"
    by_graph = True

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64) if context.mixing is None else context.mixing
