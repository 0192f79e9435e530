"""SGP: gossip over links of one direction, with a weight that undoes their bias (Assran et al., ICML 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.place import Matrix
from fedguard.contracts import PositiveFloat
from fedguard.contracts.channels import WEIGHT


@dataclass(frozen=True, kw_only=True)
class StochasticGradientPush(Gossip):
    """Each node pushes shares of its value and of its weight to those that hear it, and divides one by the other.

    $x <- P(x + u(z))$, $w <- P w$, $z = x / w$ with $w = 1$ at first, and a column-stochastic P: a node gives itself and each
    node that receives from it an equal share. So the sum over all nodes is kept for any graph. Node i computes
    $z_i <- z_i + R(x_j / w_j - z_i)$, where the mean weighs by $P_ij w_j / w_i$.

    A lost message takes its weight along, so that value and weight stay consistent.

    Weights are self-reported: a node that claims too much dominates its neighbors' means and inflates the sum of all weights,
    so that honest updates, which are divided by their weights, vanish. Rules other than the mean do not help. ``cap`` does:
    a received weight counts up to a multiple of the weight that the node keeps, $P_ij w_j <= cap * P_ii w_i$; the excess is
    lost.

    Args:
        cap: largest received weight as a multiple of the weight that the node keeps; None for no cap.
    """

    whole = True
    name = "sgp"
    source = "Assran et al., Stochastic Gradient Push for Distributed Deep Learning, ICML 2019"
    stands_loss = True
    both_ways = False
    channels = Gossip.channels | {WEIGHT}

    cap: PositiveFloat | None = None

    def spec(self) -> dict[str, Any]:
        return {key: value for key, value in super().spec().items() if value is not None}

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        z, w = nodes.start, np.ones(len(nodes.start))
        while True:
            pushed = _shares(nodes.matrix, self.weight) * nodes.said.weights(w)
            if self.cap is not None:
                pushed = _cap_weights(pushed, self.cap)
            pushed = nodes.drop_messages(pushed)
            w_next = pushed.sum(1)
            values = z + nodes.updates(z) / torch.from_numpy(w).to(z.dtype)[:, None]
            z = nodes.mix_values(values, about=z, matrix=pushed / w_next[:, None])
            w = w_next
            yield z


def _shares(matrix: Matrix, weight: float) -> Matrix:
    """Column-stochastic matrix: a node gives equal shares to itself and the nodes that receive from it."""
    heard = (matrix != 0) | np.eye(len(matrix), dtype=bool)
    shares: Matrix = weight * heard / heard.sum(0) + (1 - weight) * np.eye(len(matrix))
    return shares


def _cap_weights(pushed: Matrix, cap: float) -> Matrix:
    """The sent weights, each cut to ``cap`` times the weight that the receiver keeps of its own."""
    kept = np.diag(pushed).copy()
    capped: Matrix = np.minimum(pushed, cap * kept[:, None])
    capped[np.diag_indices(len(kept))] = kept
    return capped
