"""Shared parts of the rules at a node without a server: its own row, and the weights of its neighbors."""

from __future__ import annotations

import torch
from torch import Tensor

from fedguard.contracts import RuleContext


def weights_of(context: RuleContext, n: int) -> Tensor:
    """float64 ``[n]``: the weights of the rows in the graph, which add up to 1; equal weights if there are none."""
    return torch.full((n,), 1 / n, dtype=torch.float64) if context.mixing is None else context.mixing


def hostile_weight(weights: Tensor, context: RuleContext) -> float:
    """The largest total weight of f malicious neighbors."""
    others = weights.clone()
    # The node trusts itself, however much its own row weighs
    others[context.own] = 0
    return float(others.topk(context.f).values.sum())


def clip_around(own: int, weights: Tensor, distances: Tensor, radius: float) -> Tensor:
    """float64 ``[n]``: the weights of the rows in $x_own + sum_j w_j clip(x_j - x_own, radius)$.

    Args:
        distances: float64 ``[n]``: the distance of each row from the node's own.
    """
    pull = weights * (radius / distances).clamp(max=1).nan_to_num(nan=1.0)
    # Set to 0 first, so that the rest is 1 less the neighbors alone: the weights add up to 1 whatever was clipped
    pull[own] = 0
    pull[own] = 1 - pull.sum()
    return pull
