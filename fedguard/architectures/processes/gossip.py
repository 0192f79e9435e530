"""One node of a gossip as a process: the algorithm runs in it unchanged, on the one row that it has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.parcels import Parcel
from fedguard.architectures.gossip.place import EVERYBODY, Destination, Matrix
from fedguard.architectures.processes.links import ProcessLinks
from fedguard.architectures.processes.links import VectorTransfer as Sent
from fedguard.architectures.sides import Sides
from fedguard.contracts import SentRound, Setup
from fedguard.errors import PreconditionError
from fedguard.kernels import unusable_rows


def models(architecture: Gossip, setup: Setup, links: ProcessLinks) -> Iterator[Tensor]:
    """float32 ``[d]``: this node's model after each round."""
    node = GossipNodeProcess(setup, architecture, links)
    after = architecture.models(node)
    for round in range(1, setup.cell.training.rounds + 1):
        node.begin(round)
        yield next(after)[links.rank]


class GossipNodeProcess(Nodes):
    """The nodes as one of them sees them: of each matrix it has its own row, and the received rows.

    All other rows are NaN, so an algorithm that reads a value its node never received ends in NaN. A malicious node taps all
    links, as the threat model grants it, and crafts its messages to honest nodes in its own process.
    """

    def __init__(self, setup: Setup, architecture: Gossip, links: ProcessLinks) -> None:
        super().__init__(setup, architecture.seats(setup), architecture.broadcast)
        self._others, self._me = links, links.rank
        self.here = (self._me,)
        self._liars = tuple(sorted(setup.malicious)) if setup.cell.attack else ()
        self._lies = self._me in self._liars
        own = self.start[self._me].clone()
        self.start.fill_(math.nan)
        self.start[self._me] = own

    def exchange_values(
        self, values: Tensor, about: Tensor, at: Tensor, matrix: Matrix, trackers: bool, parcel: Parcel | None
    ) -> Tensor:
        values, about, at = values.clone(), about.clone(), at.clone()
        self._tell(values, about, at, matrix)
        lies: list[Sent] = []
        if self._lies:
            told = self._craft_messages(values, about, at, matrix, trackers, parcel)
            lies = [Sent(node, vector) for node, vector in told.items()]
        heard = [] if self._lies else [Sent(liar, values[liar]) for liar in self._liars if matrix[self._me, liar]]
        self._others.exchange(lies, heard)
        return values

    def _tell(self, values: Tensor, about: Tensor, at: Tensor, matrix: Matrix) -> None:
        """Send honest values to their receivers, and all that a node has to the nodes that tap the links."""
        me, sent, received = self._me, list[Sent](), list[Sent]()
        own = torch.stack([values[me], about[me], at[me]])
        tapped = {node: torch.empty_like(own) for node in range(self.topology.nodes) if self._lies and node != me}
        for node in range(self.topology.nodes):
            if node == me:
                continue
            if node in self._liars:
                sent.append(Sent(node, own))
            elif matrix[node, me] and not self._lies:
                sent.append(Sent(node, values[me]))
            if self._lies:
                received.append(Sent(node, tapped[node]))
            elif matrix[me, node] and node not in self._liars:
                received.append(Sent(node, values[node]))
        self._others.exchange(sent, received)
        for node, rows in tapped.items():
            values[node], about[node], at[node] = rows

    def _craft_messages(
        self, values: Tensor, about: Tensor, at: Tensor, matrix: Matrix, trackers: bool, parcel: Parcel | None
    ) -> dict[int, Tensor]:
        """Message of this malicious node to each honest node that receives from it."""
        hearing = [node for node in self.honest if matrix[node, self._me]]
        if self._broadcast:
            said = super()._craft_broadcast(values, about, at, trackers, parcel)
            return dict.fromkeys(hearing, self._require_row(said.get(self._me), EVERYBODY))
        found = {}
        for node in hearing:
            sent = super()._collect_messages(
                Destination(node, matrix[node], about[node], at[node], trackers, parcel), values, {}
            )
            row = sent.updates[sent.senders.index(self._me)] if self._me in sent.senders else None
            found[node] = about[node] + self._require_row(row, node)
        return found

    def _require_row(self, said: Tensor | None, to: int) -> Tensor:
        if said is None:
            raise PreconditionError(f"node {self._me} stops sending to {to}, which would wait for it forever.")
        return said

    def _craft_broadcast(
        self, values: Tensor, about: Tensor, at: Tensor, trackers: bool, parcel: Parcel | None
    ) -> dict[int, Tensor]:
        """Nothing: the messages are already sent."""
        return {}

    def _collect_messages(self, place: Destination, values: Tensor, said: Mapping[int, Tensor]) -> SentRound:
        """The received values, with rows in the order that the seed determines."""
        assert place.weights is not None
        heard = {int(other) for other in np.flatnonzero(place.weights)} | {place.node}
        lying = () if self._lies else tuple(sorted(heard & self._acting))
        honest = tuple(sorted(heard - set(lying)))
        rows = values.new_empty(len(heard), values.shape[1])
        sides = Sides.split_rows(self._setup.rng.child("order", self._exchanges, place.node), rows, honest, lying)
        torch.sub(values[list(sides.order)], place.about, out=rows)
        return SentRound(self._round, place.model, rows, sides.order, frozenset(lying))

    def _sums(self, weights: Matrix, values: Tensor) -> Tensor:
        heard = np.flatnonzero(weights.any(0))
        return super()._sums(weights[:, heard], values[heard])

    def _summable_nodes(self, values: Tensor, matrix: Matrix) -> list[int]:
        pipeline, me = self._setup.cell.pipeline, self._me
        heard = np.flatnonzero(matrix[me])
        if pipeline.mixings or not pipeline.rule.by_graph or unusable_rows(values[heard]):
            return []
        return [me] if self._lies or not any(matrix[me, liar] for liar in self._liars) else []
