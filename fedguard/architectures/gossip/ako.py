"""Ako: each worker sends one block of its unsent updates in turn (Watcharapichat et al., SoCC 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.parcels import block
from fedguard.contracts import Combination
from fedguard.simulated.topology import GraphName, Topology


@dataclass(frozen=True, kw_only=True)
class Ako(Gossip):
    """Partial gradient exchange: all to all, and in round t (from 0) block t mod p of the parameters alone.

    A worker adds its updates to what it has not sent, $a_i <- a_i + u_i(x_i)$, and in its own model they count at once. All
    send block B of it: $z_i[B] <- z_i[B] + k R(a_j[B] / k)$, then $a_i[B] <- 0$, and $x_i = z_i + a_i / n$. k is the number of
    updates in it, p but for the first rounds. With the mean that is $x_i <- x_i + u_i / n$, and to it the others' blocks over
    n: each worker sends 1/p of a vector to each other one in a round, and nothing is lost, but up to p - 1 rounds late. With
    one block it is the synchronous server.

    The rule of the cell judges blocks: in its own model a worker puts what the rule made of a block in the place of its own
    updates. The source's workers do not wait for each other; here they do.

    Args:
        parts: p.
    """

    name = "ako"
    source = "Watcharapichat et al., Ako: Decentralised Deep Learning with Partial Gradient Exchange, SoCC 2016"

    graph: GraphName = "complete"
    parts: Annotated[int, Interval(ge=1, le=1000)] = 4

    def _of_graph(self, graph: Topology, cell: Combination) -> Iterator[str]:
        if any(not np.allclose(one, 1 / graph.nodes) for one in graph.matrices):
            yield (
                f"{self.name} sends updates and never models: workers that do not weigh all others alike would drift apart. "
                "Set graph: complete and weight: 1, or use d_psgd."
            )

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        n, dim = nodes.start.shape
        settled, unsent, parts = nodes.start.clone(), torch.zeros_like(nodes.start), self.parts
        x, blocks, t = settled, [block(dim, parts, number) for number in range(parts)], 0
        while True:
            unsent = unsent + nodes.updates(x)
            parcel, updates = blocks[t % parts], min(t + 1, parts)
            sent = parcel.packed(unsent)
            settled = settled + updates * nodes.of_parcels(sent / updates, parcel, models=x)
            unsent = unsent - sent
            x, t = settled + unsent / n, t + 1
            yield x
