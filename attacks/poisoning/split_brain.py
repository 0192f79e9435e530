"""Split brain: other sums for some nodes than for others; FedGuard's own, on the collectives of Patarasu and Yuan."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight, lies
from fedguard.contracts.channels import FINISHED_SUMS


@dataclass(frozen=True, kw_only=True)
class SplitBrain(PoisonAttack):
    """Sends an honest update, adds up honestly, and hands on finished sums that it has changed.

    Each of f malicious nodes adds $b = -(1 + scale) (n / f) mu$ to each finished chunk of the sum that it forwards, with mu
    the mean of the benign sample. In a ring the nodes before the first malicious one receive the true chunk; the nodes
    after the last one receive a chunk that leads backwards. Chunks start at different nodes, so the affected nodes differ
    by chunk. The nodes' models diverge, and no node can see it in what it receives. Hashes of the sums, broadcast to all
    nodes, reveal it.

    Args:
        scale: how far backwards.
    """

    name = "split_brain"
    source = "FedGuard; the collectives are of Patarasu and Yuan, Bandwidth Optimal All-reduce Algorithms, JPDC 2009"
    needs = (Sight.HONEST_UPDATES | Sight.OWN_DATA, Sight.OWN_DATA)

    scale: PositiveFloat = 1.0

    @lies(FINISHED_SUMS)
    def hand_on(self, nothing: Tensor, view: PoisonView, crafted: Tensor) -> Tensor:
        return (-(1 + self.scale) * view.n / view.f * view.benign.mean(0)).expand(view.f, -1)
