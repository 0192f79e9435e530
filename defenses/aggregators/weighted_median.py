"""Coordinate-wise median by weight: the weighted median of Edgeworth (1888)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import CoordinateRule, RuleContext, Sight
from fedguard.defenses.aggregators.by_weight import sort_with_weights


@dataclass(frozen=True, kw_only=True)
class WeightedMedian(CoordinateRule):
    """The median of each coordinate, where each client counts as often as the examples it claims to have.

    $R(x)_k$ minimizes $sum_i w_i |x_ik - r|$ over r, with $w_i = m_i / (sum_j m_j)$ for the claims $m_i$; where two values
    next to each other and all between them do, it is their mean. Of equal claims it is the median. Clients with less than
    half of the weight cannot move it beyond the values of the others; a client with more than half is the result. The $m_i$
    are claims: a client with a false claim gains weight.
    """

    name = "weighted_median"
    source = "Edgeworth, On a New Method of Reducing Observations Relating to Several Quantities, 1888"
    needs = (Sight.EACH_UPDATE,)
    breakdown = "malicious clients with less than half of the weight"
    cost = "O(nd log n): one sort of each column"
    reads_clients = True

    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        ordered, upto = sort_with_weights(self.name, block, context.samples)
        # The first value with half of the weight up to it, and the first with more; the slack is for sums of rounded shares
        low, high = ((upto < half).sum(0, keepdim=True) for half in (0.5 - 1e-9, 0.5 + 1e-9))
        low, high = (place.clamp(max=len(block) - 1) for place in (low, high))
        middle: Tensor = torch.cat([ordered.gather(0, low), ordered.gather(0, high)]).mean(0)
        return middle
