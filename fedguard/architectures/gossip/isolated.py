"""Each node trains alone: what any exchange has to beat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.simulated.topology import GraphName


@dataclass(frozen=True, kw_only=True)
class IsolatedTraining(Gossip):
    """Each node trains on its own examples and hears nobody.

    $x <- x + u(x)$. The reference for all algorithms with exchanges: a node that ends below it would have done better
    without the others.
    """

    name = "lone"
    source = "a reference, and no algorithm"
    stands_loss = True

    channels = frozenset()

    graph: GraphName = "none"

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        x = nodes.start
        while True:
            x = nodes.mix_values(x + nodes.updates(x), about=x)
            yield x
