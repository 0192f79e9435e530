"""Dissensus along the graph's slowest eigenvector (Gaucher, Dieuleveut and Hendrikx, ICML 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class SpectralDissensus(PoisonAttack):
    """Each node is pushed along the disagreement that honest nodes forget most slowly.

    $b = x_i + epsilon * e_i sum_j e_j x_j$ for the receiving node i, with j over all honest nodes. e, of length 1, is the
    eigenvector of the second smallest eigenvalue of the Laplacian of the weights between honest nodes. It separates the
    groups of nodes with the weakest links between them, and disagreement along it decays most slowly. Unlike `dissensus`
    the attack does not cancel the neighbors' values; it needs honest nodes that differ, and increases their differences.

    Args:
        epsilon: strength.
    """

    name = "spectral_dissensus"
    source = "Gaucher, Dieuleveut and Hendrikx, Unified Breakdown Analysis for Byzantine Robust Gossip, ICML 2025"
    needs = (Sight.HONEST_UPDATES | Sight.GRAPH,)

    epsilon: PositiveFloat = 4.0

    def craft(self, view: PoisonView) -> Tensor:
        own = view.honest[view.honest_clients.index(view.receiver)]
        return (own + self.epsilon * view.slowest).expand(view.f, -1)
