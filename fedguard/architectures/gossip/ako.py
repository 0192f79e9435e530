"""Ako: each worker sends one block of its unsent updates in turn (Watcharapichat et al., SoCC 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Interval
from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.parcels import block
from fedguard.architectures.gossip.place import Matrix, ParcelBroadcast
from fedguard.contracts import Cell
from fedguard.simulated.topology import GraphName, Topology


@dataclass(frozen=True, kw_only=True)
class Ako(Gossip):
    """Partial gradient exchange: all to all, and in round t (from 0) block t mod p of the parameters alone.

    A worker adds its updates to its unsent updates, $a_i <- a_i + u_i(x_i)$; in its own model they count at once. All send
    block B: $z_i[B] <- z_i[B] + k R(a_j[B] / k)$, then $a_i[B] <- 0$, and $x_i = z_i + a_i / n$. k is the number of updates in
    the block, p except in the first rounds. With the mean this is $x_i <- x_i + u_i / n$ plus the others' blocks over n: each
    worker sends 1/p of a vector to each other worker in a round; nothing is lost, but it comes up to p - 1 rounds late. With
    one block it is the synchronous server.

    The rule of the cell aggregates blocks; a worker replaces its own updates of a block by the result. If workers do not
    ``wait`` for each other, as in the source, each continues at its own speed, and its blocks queue before its link. With the
    mean the block of worker j counts at worker i, over n, in the first step that i begins by its own clock after the block has
    arrived. Any other rule aggregates the blocks of a step at i once all have arrived. Steps are numbered: no worker counts a
    block of a later step than it has done itself. A queue grows by the time to send a block minus the time of a step, so p has
    to be large enough.

    Blocks follow the order of the parameters, so their content depends on the network: in ``softmax`` a class or two, which
    then wait for their turn together. ``shuffled`` cuts blocks from a random order, drawn for each training.

    Args:
        parts: p.
        wait: whether workers wait for each other in each step.
        shuffled: whether blocks are cut from a random order of the coordinates.
    """

    name = "ako"
    source = "Watcharapichat et al., Ako: Decentralised Deep Learning with Partial Gradient Exchange, SoCC 2016"

    graph: GraphName = "complete"
    parts: Annotated[int, Interval(ge=1, le=1000)] = 4
    wait: bool = True
    shuffled: bool = False

    later: ClassVar = {"shuffled": False}

    def spec(self) -> dict[str, Any]:
        return {key: value for key, value in super().spec().items() if key != "wait" or not value}

    def _of_graph(self, graph: Topology, cell: Cell) -> Iterator[str]:
        if any(not np.allclose(one, 1 / graph.nodes) for one in graph.matrices):
            yield (
                f"{self.name} sends updates and never models: workers that do not weigh all others alike would drift apart. "
                "Set graph: complete and weight: 1, or use d_psgd."
            )

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        n, dim = nodes.start.shape
        settled, unsent, parts = nodes.start.clone(), torch.zeros_like(nodes.start), self.parts
        on_the_way, under_way = torch.zeros_like(unsent), list[_BlockTransfer]()
        order = nodes.permutation() if self.shuffled else None
        x, blocks, t = settled, [block(dim, parts, number, order) for number in range(parts)], 0
        while True:
            unsent = unsent + nodes.updates(x)
            parcel, updates = blocks[t % parts], min(t + 1, parts)
            sent = parcel.packed(unsent)
            unsent = unsent - sent
            if self.wait:
                settled = settled + updates * nodes.of_parcels(sent / updates, parcel, models=x)
            else:
                on_the_way = on_the_way + sent
                posted = nodes.post_parcels(sent / updates, parcel, models=x)
                under_way.append(_BlockTransfer(sent, updates, posted, nodes.traffic.queue_parcels(parcel)))
                for one in under_way:
                    came = one.come(nodes.traffic.clocks, singly=nodes.adds_up)
                    if came.any():
                        settled = settled + one.updates * nodes.aggregate_parcels(one.posted, came, models=x)
                        # Its own block counts in the settled model from now on, and must not count twice
                        on_the_way = on_the_way - torch.from_numpy(came.diagonal().copy())[:, None] * one.sent
                under_way = [one for one in under_way if one.awaited.any()]
            x, t = settled + (unsent + on_the_way) / n, t + 1
            yield x


class _BlockTransfer:
    """A block on its way from each worker to each.

    Attributes:
        sent: float32 ``[n, d]``: block of each worker's updates.
        updates: number of updates in the block.
        posted: the same block as a broadcast of `Nodes`.
        awaited: bool ``[n, n]``: whether the block of worker j (column) does not yet count at worker i (row).
    """

    def __init__(self, sent: Tensor, updates: int, posted: ParcelBroadcast, arrivals: Matrix) -> None:
        self.sent, self.updates, self.posted = sent, updates, posted
        self._arrivals = arrivals
        self.awaited = np.ones(arrivals.shape, bool)

    def come(self, clocks: NDArray[np.float64], singly: bool) -> NDArray[np.bool_]:
        """bool ``[n, n]``: blocks that have arrived at each worker by its own clock, and did not count yet.

        Args:
            clocks: float64 ``[n]``: start of each worker's next step, in simulated seconds.
            singly: whether each block counts by itself; otherwise none counts before all have arrived.
        """
        came: NDArray[np.bool_] = self.awaited & (self._arrivals <= clocks[:, None])
        if not singly:
            came &= came.all(1, keepdims=True)
        self.awaited &= ~came
        return came
