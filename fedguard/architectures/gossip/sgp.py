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


@dataclass(frozen=True, kw_only=True)
class StochasticGradientPush(Gossip):
    """Each node pushes shares of its value and of its weight to those that hear it, and divides one by the other.

    $x <- P(x + u(z))$, $w <- P w$, $z = x / w$ with $w = 1$ at first, and P whose columns add up to 1: a node gives each of
    those that hear it, and itself, an equal share. So the sum over all nodes stays, whatever the graph. As a node sees it,
    $z_i <- z_i + R(x_j / w_j - z_i)$, where the mean weighs by $P_ij w_j / w_i$.

    What is lost on its way takes its weight along, so that nodes still divide like by like.

    A node's weight is its word: one that tells more than it has fills its neighbors' means, and makes the sum of all weights
    grow, so that their own updates, which are divided by their weights, come to nothing: other rules than the mean do not
    help against that. ``cap`` does: of the weight that a node is sent nothing counts beyond so many times what it keeps
    itself, $P_ij w_j <= cap * P_ii w_i$; what is cut is lost.

    Args:
        cap: as above; None for none.
    """

    whole = True
    name = "sgp"
    source = "Assran et al., Stochastic Gradient Push for Distributed Deep Learning, ICML 2019"
    stands_loss = True
    both_ways = False
    believes = Gossip.believes | {"claim_weight"}

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
    """Columns that add up to 1: equal shares for those that hear a node, and itself."""
    heard = (matrix != 0) | np.eye(len(matrix), dtype=bool)
    shares: Matrix = weight * heard / heard.sum(0) + (1 - weight) * np.eye(len(matrix))
    return shares


def _cap_weights(pushed: Matrix, cap: float) -> Matrix:
    """The weight that is sent, none of it beyond so many times what the node that hears it keeps of its own."""
    kept = np.diag(pushed).copy()
    capped: Matrix = np.minimum(pushed, cap * kept[:, None])
    capped[np.diag_indices(len(kept))] = kept
    return capped
