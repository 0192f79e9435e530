"""ClippedGossip: a node clips what it receives around its own value (He, Karimireddy and Jaggi, 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedguard.contracts import Gram, PositiveFloat, RuleContext, Sight, WeightRule
from fedguard.defenses.aggregators.neighbors import clip_around, hostile_weight, weights_of


@dataclass(frozen=True, kw_only=True)
class ClippedGossip(WeightRule):
    """Each node takes a step towards every neighbor, no longer than its radius allows.

    $R = x_i + sum_j W_ij clip(x_j - x_i, tau_i)$, where $clip(z, tau) = z min(1, tau / |z|)$. What a malicious neighbor adds
    is bounded by $W_ij tau_i$, whatever it sends. But with heterogeneous data the radius is the honest spread, and steady
    pushes of that length add up: the rule bounds each step, not the bias.

    Args:
        tau: the radius; None takes the source's, $tau_i^2 = (1 / b) sum_j W_ij |x_j - x_i|^2$ over the nearest rows with a
            total weight of 1 - b, where b is the largest weight that malicious neighbors can have: the weight
            of the f heaviest.
    """

    name = "clipped_gossip"
    source = "He, Karimireddy and Jaggi, Byzantine-Robust Decentralized Learning via ClippedGossip, 2022"
    needs = (Sight.EACH_UPDATE | Sight.GRAPH,)
    breakdown = "b W-weight of malicious neighbors up to about the spectral gap squared"
    cost = "O(n^2 d): one Gram matrix"
    reads_clients = True
    grid: ClassVar = {"tau": (None, 0.1, 1.0, 10.0)}

    tau: PositiveFloat | None = None

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        weights, distances = weights_of(context, gram.n), gram.distances_to(gram.unit(context.own))
        return clip_around(context.own, weights, distances, self._radius(weights, distances, context))

    def _radius(self, weights: Tensor, distances: Tensor, context: RuleContext) -> float:
        if self.tau is not None:
            return self.tau
        hostile = hostile_weight(weights, context)
        if hostile == 0:
            # No malicious weight is plain gossip: the radius of the source, which divides by b, grows without bound
            return math.inf
        order = distances.argsort(stable=True)
        # The slack is for sums of rounded weights, which may miss 1 - b by a few units in the last place
        near = order[weights[order].cumsum(0) <= 1 - hostile + 1e-9]
        return math.sqrt(float((weights[near] * distances[near].square()).sum()) / hostile)
