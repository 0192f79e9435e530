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
    is `monna` with each node as its own pivot, and ignores the weights of the graph. Rows far away are left out, so the spread
    of the honest rows bounds the influence of a malicious neighbor.
    """

    name = "nna"
    source = "Farhadkhani et al., Robust Collaborative Learning with Linear Gradient Overhead, ICML 2023"
    needs = (Sight.EACH_UPDATE | Sight.GRAPH,)
    min_rows = (1, 1)
    proven_rows = (5, 1)
    breakdown = "f < n/5 over a complete graph in the source's proof"
    cost = "O(n^2 d): one Gram matrix"
    reads_clients = True

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return smallest_alike(gram.distances_to(gram.unit(context.own)), gram.n - context.f)
