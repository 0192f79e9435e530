"""Poisoned partial sums; FedGuard's own, on the collectives of Patarasu and Yuan (JPDC 2009)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class PartialSum(PoisonAttack):
    """Sends an honest update, and changes the sums of others that it passes on, so that the mean comes out reversed.

    Each of f malicious nodes adds $b = -(1 + scale) (n / f) mu$ to each sum that goes through it, mu the mean of the benign
    sample: the sum of n updates, near $n mu$, becomes $-scale n mu$. In effect one more vector of any length stands in the
    sum with weight 1. Each node's own update is honest and as long as others, so that no check of these finds anything, and
    whoever gets a wrong sum cannot tell which of those before it made it so. In a ring a node's own chunk does not come by
    as a sum, and stays as it is.

    Args:
        scale: how far backwards.
    """

    name = "partial_sum"
    source = "FedGuard; the collectives are of Patarasu and Yuan, Bandwidth Optimal All-reduce Algorithms, JPDC 2009"
    needs = (Sight.HONEST_UPDATES | Sight.OWN_DATA, Sight.OWN_DATA)

    scale: PositiveFloat = 1.0

    def adds(self, view: PoisonView, crafted: Tensor) -> Tensor:
        return (-(1 + self.scale) * view.n / view.f * view.benign.mean(0)).expand(view.f, -1)
