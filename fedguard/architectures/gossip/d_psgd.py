"""D-PSGD: a local step and an exchange with the neighbors, in turn (Lian et al., NeurIPS 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class DecentralizedSGD(Gossip):
    """Each node trains, and takes the mean of its own and its neighbors' models.

    $x <- W(x + u(x))$, adapt first. The paper's form, combine first, is $x <- W x + u(x)$: each node applies its own update
    last, so that even a complete graph differs from the synchronous server. u is the update of local training, $-eta g$ for
    one step. On heterogeneous data models stay apart, the more so the sparser the graph.

    Args:
        order: whether a node applies its update before it mixes, or after.
    """

    whole = True
    name = "d_psgd"
    source = "Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms?, NeurIPS 2017"
    stands_loss = True

    order: Literal["adapt_first", "combine_first"] = "adapt_first"

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        x = nodes.start
        while True:
            if self.order == "adapt_first":
                x = nodes.mix_values(x + nodes.updates(x), about=x)
            else:
                u = nodes.updates(x)
                x = nodes.mix_values(x, about=x) + u
            yield x
