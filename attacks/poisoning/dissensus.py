"""Dissensus: malicious neighbors undo what honest ones pull a node towards (He, Karimireddy and Jaggi, 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class Dissensus(PoisonAttack):
    """Each node is pushed away from its honest neighbors, by as much as these pull it towards them.

    $b = x_i - epsilon * sum_j W_ij (x_j - x_i) / sum_m W_im$ for the receiving node i, with j over its honest and m over
    its malicious neighbors. With $epsilon = 1$ the weighted mean of what node i receives is its own value, so the nodes
    never reach consensus; with larger $epsilon$ they drift apart.

    Args:
        epsilon: strength.
    """

    name = "dissensus"
    source = "He, Karimireddy and Jaggi, Byzantine-Robust Decentralized Learning via ClippedGossip, 2022"
    needs = (Sight.HONEST_UPDATES | Sight.GRAPH,)

    epsilon: PositiveFloat = 1.5

    def craft(self, view: PoisonView) -> Tensor:
        honest, weights = view.honest, view.mixing.to(view.honest.dtype)
        own = honest[view.honest_clients.index(view.receiver)]
        # The receiver is among the honest rows too, but its own difference is 0
        pull = weights[: len(honest)] @ (honest - own)
        return (own - self.epsilon * pull / weights[len(honest) :].sum()).expand(view.f, -1)
