"""CS+: a node clips what lies farthest from it to what lies less far (Gaucher, Dieuleveut and Hendrikx, ICML 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import Gram, RuleContext, Sight, WeightRule
from fedguard.defenses.aggregators.neighbors import clip_around, hostile_weight, weights_of
from fedguard.defenses.aggregators.ties import TIE


@dataclass(frozen=True, kw_only=True)
class CSPlus(WeightRule):
    """Each node takes a step towards every neighbor, at least twice the malicious weight of them clipped.

    $R = x_i + sum_j W_ij clip(x_j - x_i, tau_i)$ with $tau_i$ the largest $|x_j - x_i|$ such that all rows as near or nearer
    weigh 1 - 2b at most, including the node's own; b is the largest weight that malicious neighbors can have: the weight of
    the f heaviest. So for each malicious neighbor an honest one is clipped as well. If 2b exceeds the weight of all neighbors,
    the node keeps its own value.
    """

    name = "cs_plus"
    source = "Gaucher, Dieuleveut and Hendrikx, Unified Breakdown Analysis for Byzantine Robust Gossip, ICML 2025"
    needs = (Sight.EACH_UPDATE | Sight.GRAPH,)
    breakdown = "2b below the algebraic connectivity of the honest graph, up to the source's constants"
    cost = "O(n^2 d): one Gram matrix"
    reads_clients = True

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        weights, distances = weights_of(context, gram.n), gram.distances_to(gram.unit(context.own))
        allowed = 1 - 2 * hostile_weight(weights, context) + 1e-9
        # All rows at one distance, up to rounding, count together: which of them comes first must not matter
        within = (distances <= distances[:, None] * (1 + TIE)).double() @ weights
        near = within <= allowed
        # Nothing is near if the node's own weight exceeds 1 - 2b: a radius of 0 keeps its own value
        radius = float(distances[near].max()) if bool(near.any()) else 0.0
        return clip_around(context.own, weights, distances, radius)
