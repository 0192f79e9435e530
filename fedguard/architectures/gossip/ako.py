"""Ako: each worker sends one block of its unsent updates in turn (Watcharapichat et al., SoCC 2016)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.parcels import Parcel, block
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
    updates. Where workers do not ``wait`` for each other, as in the source, each goes on at its own speed, and its blocks queue
    up before its link: one counts with all others in the first step that all workers begin after the last of its messages
    has arrived, and until then a worker has its own update alone, over n. A queue grows by what a block takes to be sent
    less what a step takes to be computed, which p has to be large enough for.

    Args:
        parts: p.
        wait: whether workers wait for each other in each step.
    """

    name = "ako"
    source = "Watcharapichat et al., Ako: Decentralised Deep Learning with Partial Gradient Exchange, SoCC 2016"

    graph: GraphName = "complete"
    parts: Annotated[int, Interval(ge=1, le=1000)] = 4
    wait: bool = True

    def spec(self) -> dict[str, Any]:
        return {key: value for key, value in super().spec().items() if key != "wait" or not value}

    def _of_graph(self, graph: Topology, cell: Combination) -> Iterator[str]:
        if any(not np.allclose(one, 1 / graph.nodes) for one in graph.matrices):
            yield (
                f"{self.name} sends updates and never models: workers that do not weigh all others alike would drift apart. "
                "Set graph: complete and weight: 1, or use d_psgd."
            )

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        n, dim = nodes.start.shape
        settled, unsent, parts = nodes.start.clone(), torch.zeros_like(nodes.start), self.parts
        on_the_way, queue = torch.zeros_like(unsent), deque[_Block]()
        x, blocks, t = settled, [block(dim, parts, number) for number in range(parts)], 0
        while True:
            unsent = unsent + nodes.updates(x)
            parcel, updates = blocks[t % parts], min(t + 1, parts)
            sent = parcel.packed(unsent)
            unsent, on_the_way = unsent - sent, on_the_way + sent
            queue.append(_Block(sent, updates, parcel, 0.0 if self.wait else nodes.traffic.queued(parcel)))
            while queue and (self.wait or queue[0].arrived <= nodes.traffic.earliest):
                one = queue.popleft()
                made = nodes.of_parcels(one.sent / one.updates, one.parcel, models=x, queued=not self.wait)
                settled, on_the_way = settled + one.updates * made, on_the_way - one.sent
            x, t = settled + (unsent + on_the_way) / n, t + 1
            yield x


class _Block(NamedTuple):
    """A block on its way: what all workers sent of it, the number of updates in that, and when the last of it arrives."""

    sent: Tensor
    updates: int
    parcel: Parcel
    arrived: float
