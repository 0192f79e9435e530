"""D^2: a step of decentralized SGD from which the nodes' unlike data cancel (Tang et al., ICML 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.contracts import Cell
from fedguard.simulated.topology import Topology

#: The smallest eigenvalue of W must be above this (the source's Assumption 3).
LEAST = -1 / 3


@dataclass(frozen=True, kw_only=True)
class D2(Gossip):
    """Each node corrects its step by its last one, so that unlike data leave no bias.

    $x_{t+1} = W(2 x_t - x_{t-1} + u_t - u_{t-1})$, with $x_1 = W(x_0 + u_0)$. The smallest
    eigenvalue of W must be above -1/3; with ``weight: 0.5`` it is for every graph.
    """

    whole = True
    name = "d2"
    source = "Tang et al., D^2: Decentralized Training over Decentralized Data, ICML 2018"

    def _of_graph(self, graph: Topology, cell: Cell) -> Iterator[str]:
        yield from super()._of_graph(graph, cell)
        if graph.smallest <= LEAST + 1e-9:
            yield (
                f"d2 needs a W whose smallest eigenvalue is above -1/3, and that of {self.graph} has {graph.smallest:.3g}. Set "
                "weight: 0.5."
            )

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        before = nodes.start
        last = nodes.updates(before)
        x = nodes.mix_values(before + last, about=before)
        while True:
            yield x
            u = nodes.updates(x)
            x, before, last = nodes.mix_values(2 * x - before + u - last, about=x), x, u
