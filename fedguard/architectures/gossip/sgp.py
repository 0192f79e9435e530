"""SGP: gossip over links of one direction, with a weight that undoes their bias (Assran et al., ICML 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Matrix, Nodes


@dataclass(frozen=True, kw_only=True)
class StochasticGradientPush(Gossip):
    """Each node pushes shares of its value and of its weight to those that hear it, and divides one by the other.

    $x <- P(x + u(z))$, $w <- P w$, $z = x / w$ with $w = 1$ at first, and P whose columns add up to 1: a node gives each of
    those that hear it, and itself, an equal share. So the sum over all nodes stays, whatever the graph. As a node sees it,
    $z_i <- z_i + R(x_j / w_j - z_i)$, where the mean weighs by $P_ij w_j / w_i$.
    """

    whole = True
    name = "sgp"
    source = "Assran et al., Stochastic Gradient Push for Distributed Deep Learning, ICML 2019"
    both_ways = False

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        z, w = nodes.start, np.ones(len(nodes.start))
        while True:
            pushed = _shares(nodes.matrix, self.weight) * w
            w_next = pushed.sum(1)
            values = z + nodes.updates(z) / torch.from_numpy(w).to(z.dtype)[:, None]
            z = nodes.mixed(values, about=z, matrix=pushed / w_next[:, None])
            w = w_next
            yield z


def _shares(matrix: Matrix, weight: float) -> Matrix:
    """Columns that add up to 1: equal shares for those that hear a node, and itself."""
    heard = (matrix != 0) | np.eye(len(matrix), dtype=bool)
    shares: Matrix = weight * heard / heard.sum(0) + (1 - weight) * np.eye(len(matrix))
    return shares
