"""Sparse updates (Aji & Heafield, EMNLP 2017), as a defense against inversion (Zhu et al., NeurIPS 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedguard.contracts import ClientContext, ClientTransform, Share


@dataclass(frozen=True, kw_only=True)
class Pruning(ClientTransform):
    """Each honest client sends only the largest coordinates of its update.

    $y_j = x_j$ for the $k = max(1, round(keep d))$ largest $|x_j|$, else 0. Nothing is carried over to the next round (no
    error feedback). No formal guarantee. An attacker compares the coordinates that were sent.

    Args:
        keep: the share of coordinates that is kept; Zhu et al. find that inversion fails if more than a fifth is pruned.
    """

    name = "pruning"
    source = (
        "Aji & Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017; "
        "Zhu et al., Deep Leakage from Gradients, NeurIPS 2019"
    )
    breakdown = "the breakdown point of the rule behind it"
    cost = "O(nd): the k largest, at the clients"

    keep: Share = 0.1

    def apply(self, update: Tensor, context: ClientContext) -> Tensor:
        largest = update.abs().topk(max(1, round(self.keep * len(update)))).indices
        return torch.zeros_like(update).index_copy(0, largest, update[largest])

    def adapt(self, dummy: Tensor, observed: Tensor, module: nn.Module) -> tuple[Tensor, Tensor]:
        # A coordinate sent as 0 looks like one not sent; the attacker, too, has only this mask
        return dummy * (observed != 0), observed
