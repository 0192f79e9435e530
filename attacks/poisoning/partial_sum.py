"""Poisoned partial sums; FedGuard's own, on the collectives of Patarasu and Yuan (JPDC 2009)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight, lies
from fedguard.contracts.channels import PARTIAL_SUMS


@dataclass(frozen=True, kw_only=True)
class PartialSum(PoisonAttack):
    """Sends an honest update, and changes the sums of others that it passes on, so that the mean comes out reversed.

    Each of f malicious nodes adds $b = -(1 + scale) (n / f) mu$ to each sum that it forwards, with mu the mean of the
    benign sample: the sum of n updates, near $n mu$, becomes $-scale n mu$. In effect the sum contains one more vector of
    any length with weight 1. Each node's own update is honest and of normal length, so a check of the updates finds
    nothing. A node that receives a wrong sum cannot tell which node before it changed the sum. In a ring a node's own chunk
    never passes through it as a partial sum, so it stays unchanged.

    Args:
        scale: how far backwards.
    """

    name = "partial_sum"
    source = "FedGuard; the collectives are of Patarasu and Yuan, Bandwidth Optimal All-reduce Algorithms, JPDC 2009"
    needs = (Sight.HONEST_UPDATES | Sight.OWN_DATA, Sight.OWN_DATA)

    scale: PositiveFloat = 1.0

    @lies(PARTIAL_SUMS)
    def add(self, nothing: Tensor, view: PoisonView, crafted: Tensor) -> Tensor:
        return (-(1 + self.scale) * view.n / view.f * view.benign.mean(0)).expand(view.f, -1)
