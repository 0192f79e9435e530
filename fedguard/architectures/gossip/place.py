"""Where something is heard: at one node, or by all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.gossip.parcels import Links, Parcel

Matrix = NDArray[np.float64]

#: In the place of a node: all who hear a malicious one, where they hear the same.
EVERYBODY = -1

#: A node, whether it hears trackers, and the kind of parcel: under what lies and rules remember it.
Key = tuple[int, bool, int]


@dataclass(frozen=True, eq=False)
class Destination:
    """Where something is heard: at one node, or by all (`EVERYBODY`).

    Attributes:
        weights: float64 ``[n]``: what the node gives to each value; None where all hear.
        about: float32 ``[d]``: what it measures from.
        model: float32 ``[d]``: its own.
        trackers: whether trackers are heard, and no models.
        parcel: which part of updates is heard; None for whole vectors.
        links: which part of the update of each; None if the same of all.
    """

    node: int
    weights: Matrix | None
    about: Tensor
    model: Tensor
    trackers: bool
    parcel: Parcel | None = None
    links: Links | None = None

    def pack(self, rows: Tensor, sources: Sequence[int]) -> None:
        """Leave of the rows of these nodes what their links have room for, in place."""
        for source, row in zip(sources, rows, strict=True):
            parcel = None if self.links is None or source == self.node else self.links(source, self.node)
            if parcel is not None:
                row.copy_(parcel.packed(row[None])[0])

    @property
    def key(self) -> Key:
        """Under what lies and rules remember it."""
        return self.node, self.trackers, 0 if self.parcel is None else self.parcel.kind

    def mixing(self, clients: Sequence[int]) -> Tensor:
        """float64 ``[n]``: the weight of each of these rows; what is missing to 1 is the node's own."""
        assert self.weights is not None
        found = torch.tensor([self.weights[client] for client in clients], dtype=torch.float64)
        own = list(clients).index(self.node)
        found[own] = 1 - (found.sum() - found[own])
        return found


@dataclass(frozen=True, eq=False)
class ParcelBroadcast:
    """Parcels of all nodes to all, as they were sent: lies in them are made then, and nobody has heard them yet.

    Attributes:
        exchange: its number, from 1.
        values: float32 ``[n, d]``: what each honest node sent.
        parcel: which part of updates it is.
        weights: float64 ``[n, n]``: what each node gives to each value.
        acting: the nodes that lie in it.
        lies: float32 ``[d]`` by honest node and liar; nothing of one that is silent.
    """

    exchange: int
    values: Tensor
    parcel: Parcel
    weights: Matrix
    acting: frozenset[int]
    lies: Mapping[int, Mapping[int, Tensor]]
