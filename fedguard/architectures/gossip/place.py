"""Destinations of messages: one node, or all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.gossip.parcels import Links, Parcel

Matrix = NDArray[np.float64]

#: Instead of a node: all that receive from a malicious node, if they receive the same.
EVERYBODY = -1

#: Node, whether it receives trackers, and kind of parcel: the key of the states of lies and rules.
Key = tuple[int, bool, int]


@dataclass(frozen=True, eq=False)
class Destination:
    """Destination of messages: one node, or all nodes (`EVERYBODY`).

    Attributes:
        weights: float64 ``[n]``: weight that the node gives to each value; None for all nodes.
        about: float32 ``[d]``: reference that values are measured from.
        model: float32 ``[d]``: the node's own model.
        trackers: whether trackers are received instead of models.
        parcel: part of updates that is received; None for whole vectors.
        links: part of the update of each source; None if the same for all.
    """

    node: int
    weights: Matrix | None
    about: Tensor
    model: Tensor
    trackers: bool
    parcel: Parcel | None = None
    links: Links | None = None

    def pack(self, rows: Tensor, sources: Sequence[int]) -> None:
        """Reduce the rows of these nodes to the part that fits into their links, in place."""
        for source, row in zip(sources, rows, strict=True):
            parcel = None if self.links is None or source == self.node else self.links(source, self.node)
            if parcel is not None:
                row.copy_(parcel.packed(row[None])[0])

    @property
    def key(self) -> Key:
        """Key of the states of lies and rules."""
        return self.node, self.trackers, 0 if self.parcel is None else self.parcel.kind

    def mixing(self, clients: Sequence[int]) -> Tensor:
        """float64 ``[n]``: weight of each of these rows; the node's own row has what is missing to 1."""
        assert self.weights is not None
        found = torch.tensor([self.weights[client] for client in clients], dtype=torch.float64)
        own = list(clients).index(self.node)
        found[own] = 1 - (found.sum() - found[own])
        return found


@dataclass(frozen=True, eq=False)
class ParcelBroadcast:
    """Parcels of all nodes to all, as sent: lies are crafted at this time, and no parcel has arrived yet.

    Attributes:
        exchange: number of the exchange, from 1.
        values: float32 ``[n, d]``: the parcel of each honest node.
        parcel: the part of updates that is sent.
        weights: float64 ``[n, n]``: weight that each node gives to each value.
        acting: nodes that lie in it.
        lies: float32 ``[d]`` by honest node and liar; none of silent nodes.
    """

    exchange: int
    values: Tensor
    parcel: Parcel
    weights: Matrix
    acting: frozenset[int]
    lies: Mapping[int, Mapping[int, Tensor]]
