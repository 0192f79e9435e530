"""Weighted mean: federated averaging by number of examples (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import Gram, RuleContext, Sight, WeightRule
from fedguard.contracts.claims import shares


@dataclass(frozen=True, kw_only=True)
class WeightedMean(WeightRule):
    """The average of the updates, weighted by the number of examples each client claims to have.

    $R(x) = sum_i (m_i / (sum_j m_j)) x_i$. The $m_i$ are claims: a client with a false claim gains weight. If the claims add
    up to 0, the rule cannot run.
    """

    name = "weighted_mean"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"
    needs = (Sight.SUM,)
    breakdown = "0: one update decides"
    cost = "one pass"
    reads_clients = True
    by_samples = True

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return shares(self.name, context.samples)
