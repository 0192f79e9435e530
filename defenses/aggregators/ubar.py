"""UBAR: a node takes those near to it that do as well on its examples (Guo et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import Fraction, Gram, RuleContext, Sight, WeightRule
from fedguard.defenses.aggregators.ties import smallest_alike


@dataclass(frozen=True, kw_only=True)
class UBAR(WeightRule):
    """The nearest neighbors with a loss on the node's examples that is no larger than the node's own loss.

    $R = alpha x_i + (1 - alpha) mean_{j in S} x_j$: of the n - 1 neighbors the n - 1 - f nearest are candidates, and S are
    the candidates with $l(x_j) <= l(x_i)$; if there is none, the candidate with the smallest loss. In the source the
    candidates are a share rho of the neighbors, meant to be the share of honest ones, and the loss is over one batch; here
    it is over all of the node's examples.

    Args:
        alpha: the weight of the node's own value.
    """

    name = "ubar"
    source = "Guo et al., Byzantine-Resilient Decentralized Stochastic Gradient Descent, IEEE TCSVT 2021"
    needs = (Sight.EACH_UPDATE | Sight.GRAPH | Sight.ROOT_DATA | Sight.MODEL,)
    by_blocks = False
    min_rows = (1, 2)
    breakdown = "any minority of a node's neighbors, as long as one of them is honest; no proof with unlike data"
    cost = "O(n^2 d): one Gram matrix, and n passes over the node's examples"
    reads_clients = True

    alpha: Fraction = 0.5

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        own, n = context.own, gram.n
        others = torch.tensor([row for row in range(n) if row != own])
        near = smallest_alike(gram.distances_to(gram.unit(own))[others], n - 1 - context.f) > 0
        looked_at = others[near]
        tried = [context.root_loss(context.model + gram.vectors[row]) for row in (*looked_at, own)]
        # A model that overflows on the node's examples has a loss of NaN, which compares as neither good nor bad
        losses = torch.tensor(tried, dtype=torch.float64).nan_to_num(nan=torch.inf)
        # If no neighbor does as well as the node, this is the smallest loss, and its row is chosen
        least = torch.maximum(losses[-1], losses[:-1].min())
        chosen = looked_at[losses[:-1] <= least]
        weights = torch.zeros(n, dtype=torch.float64)
        weights[chosen] = (1 - self.alpha) / len(chosen)
        weights[own] = self.alpha
        return weights
