"""BRIDGE-T: a node trims its neighbors' values and keeps its own (Fang, Yang and Bajwa, 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import MatrixRule, RuleContext, Sight
from fedguard.kernels import sort_rows, walk


@dataclass(frozen=True, kw_only=True)
class Bridge(MatrixRule):
    """In each coordinate the f largest and the f smallest values of the neighbors are dropped; the node's own stays.

    $R_k = (x_ik + sum_{j kept in k} x_jk) / (n - 2f)$ for n rows, including the node's own. `trimmed_mean` at a node may drop
    the node's own value; this rule never does. On a ring, where a node has two neighbors, f = 1 leaves only its own value.
    """

    name = "bridge"
    source = "Fang, Yang and Bajwa, BRIDGE: Byzantine-Resilient Decentralized Gradient Descent, 2022"
    needs = (Sight.EACH_UPDATE | Sight.GRAPH,)
    min_rows = (2, 1)
    breakdown = "f malicious neighbors of each node that hears 2f + 1 or more"
    cost = "O(nd log n): one sort of each column"
    reads_clients = True
    by_blocks = True

    def combine(self, updates: Tensor, context: RuleContext) -> Tensor:
        n, d = updates.shape
        others = [row for row in range(n) if row != context.own]
        out = torch.empty(d, dtype=updates.dtype)
        for block in walk(updates):
            # Indexing by a list copies, so the in-place sort leaves the updates alone.
            # At n = 2f + 1 no neighbor's value is left, and the node keeps its own
            kept = sort_rows(updates[others, block])[context.f : n - 1 - context.f]
            out[block] = (kept.sum(0) + updates[context.own, block]) / (n - 2 * context.f)
        return out
