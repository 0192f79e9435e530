"""NNA: a node takes the mean of what is nearest to its own (Farhadkhani et al., ICML 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import Gram, RuleContext, Sight, WeightRule
from fedguard.defenses.aggregators.ties import smallest_alike


@dataclass(frozen=True, kw_only=True)
class NearestNeighborAveraging(WeightRule):
    """The mean of the n - f rows nearest to the node's own, its own among them.

    $R = 1/(n - f)$ times the sum of $x_j$ over the n - f nearest to $x_i$; rows that tie for the last places share them. It
    is `monna` with each node as its own pivot. Weights of the graph do not count. Whoever sends something far away is left out,
    so what a malicious neighbor can do is bounded by the spread of the honest ones.
    """

    name = "nna"
    source = "Farhadkhani et al., Robust Collaborative Learning with Linear Gradient Overhead, ICML 2023"
    needs = (Sight.EACH_UPDATE | Sight.GRAPH,)
    min_rows = (1, 1)
    proven_rows = (5, 1)
    breakdown = "f < n/5 over a complete graph in the source's proof"
    cost = "O(nd): distances to the node's own row"
    reads_clients = True

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return smallest_alike(gram.distances_to(gram.unit(context.own)), gram.n - context.f)
