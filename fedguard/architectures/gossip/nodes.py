"""The nodes of a training without a server: their local training, their exchanges, and the rule at each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.by_node import by_node
from fedguard.architectures.clients import Clients
from fedguard.architectures.gossip.listening import Eavesdropper
from fedguard.architectures.gossip.masked import MaskedSums
from fedguard.architectures.gossip.parcels import Links, Parcel
from fedguard.architectures.gossip.place import EVERYBODY, Destination, Key, Matrix, ParcelBroadcast
from fedguard.architectures.gossip.rules import Rules, weighs_by_graph
from fedguard.architectures.gossip.said import SelfReports
from fedguard.architectures.gossip.traffic import Traffic
from fedguard.architectures.malicious import MaliciousClients
from fedguard.architectures.release import report_round
from fedguard.architectures.rule_context import ColluderPipeline, NodeContext
from fedguard.architectures.sides import Sides
from fedguard.architectures.times import world
from fedguard.contracts import Fate, ReceivedRound, RoundReport, SentRound, Setup
from fedguard.contracts.channels import MIXING, TRACKERS
from fedguard.kernels import unusable_rows
from fedguard.simulated.topology import Topology


class Nodes:
    """All nodes of one training.

    A malicious node does not train while it acts. What it sends to an honest node is crafted for that node's model, from the
    values of the node's honest neighbors; with `broadcast`, for the mean model of all honest nodes.

    Attributes:
        start: float32 ``[n, d]``: the models before the first round, all equal.
        topology: the graph, with nodes numbered as the clients.
        honest: nodes that never lie.
        said: self-reports of the nodes.
        traffic: clocks and links of the nodes.
    """

    def __init__(self, setup: Setup, topology: Topology, broadcast: bool, masks: MaskedSums | None = None) -> None:
        self._setup, self.topology, self._broadcast = setup, topology, broadcast
        self._n = topology.nodes
        #: Nodes in this process: all, unless each is a process of its own.
        self.here: tuple[int, ...] = tuple(range(self._n))
        malicious = setup.malicious if setup.cell.attack else frozenset()
        self.honest = tuple(node for node in range(self._n) if node not in malicious)
        self.clients = Clients(setup)
        self.start = setup.task.initial_model(setup.rng.child("model")).expand(self._n, -1).clone()
        self._world = world(setup, self.start[0])
        self.said, self.traffic = SelfReports(setup, self._world), Traffic(setup, self._world, topology)
        self._rules = Rules(setup)
        self._round, self._trainings, self._exchanges = 0, 0, 0
        self._working: dict[Key, MaliciousClients] = {}
        self._acting: frozenset[int] = frozenset()
        self._alone: frozenset[int] = frozenset()
        self._arrived: list[int] = []
        self._masks, self._ear = masks, Eavesdropper(setup, masks is not None) if setup.observer else None

    def begin(self, round: int) -> None:
        """A round begins (from 1)."""
        setup = self._setup
        acting, self._round, self.said.round = setup.acting(round), round, round
        self._alone = frozenset(node for node in acting if not setup.report(MIXING, node, True, round))
        self._acting = acting - self._alone
        self._rules.begin(round, self._acting)
        self.traffic.begin()
        self._arrived = []
        if self._ear is not None:
            self._ear.begin(round)

    @property
    def acting(self) -> frozenset[int]:
        """The nodes that send crafted messages in this round."""
        return self._acting

    @property
    def matrix(self) -> Matrix:
        """float64 ``[n, n]``: the mixing matrix of the next exchange."""
        return self.topology.at(self._exchanges)

    def permutation(self) -> Tensor:
        """int64 ``[d]``: a random order of the coordinates, drawn for this training."""
        return torch.from_numpy(self._setup.rng.child("coordinates").numpy().permutation(self.start.shape[1]))

    @property
    def adds_up(self) -> bool:
        """Whether the rule is a sum by the graph's weights, so that its terms may arrive one by one."""
        pipeline = self._setup.cell.pipeline
        return not pipeline.mixings and pipeline.rule.by_graph

    @property
    def batch_size(self) -> int:
        """The plan's examples per step, the same for all nodes."""
        size = self._setup.local_plan.batch_size
        assert size is not None
        return size

    def drop_messages(self, matrix: Matrix) -> Matrix:
        """float64 ``[n, n]``: the matrix without the messages of the next exchange that the network loses."""
        return self.traffic.drop_messages(matrix, self._exchanges)

    def updates(self, models: Tensor, batches: Sequence[int] | None = None, faster: float = 1.0) -> Tensor:
        """float32 ``[n, d]``: the update of each node's next local training from its own model, ``[n, d]`` as well.

        Args:
            batches: each node's examples per step, if not the plan's; training time grows with them.
            faster: factor of the plan's step size.
        """
        self._trainings += 1
        training = [node for node in self.here if node not in self._acting]
        rows = torch.zeros_like(models)
        with self._setup.stopwatch.stage("training"):
            trained = rows[training]
            sizes = None if batches is None else dict(enumerate(batches))
            nodes = tuple(training)
            self.clients.train_honest(models[training], self._trainings, nodes, trained, batches=sizes, faster=faster)
            rows[training] = trained
        self.traffic.advance_clocks(self._trainings, batches)
        self._arrived.extend(range(self._n))
        if self._ear is not None:
            self._ear.record_updates(models, rows)
        return rows

    def mix_values(
        self,
        values: Tensor,
        about: Tensor,
        *,
        matrix: Matrix | None = None,
        trackers_at: Tensor | None = None,
        vectors: int = 1,
    ) -> Tensor:
        """Aggregate at each node its own value and the values that it receives, by the rule of the cell.

        $v_i <- a_i + R(v_j - a_i : j = i or i hears j)$; the mean weighs by row i of the matrix. The weight of a lost message
        goes to the node's own value; the node continues at the time at which the message would have come.

        Args:
            values: float32 ``[n, d]``: what each node sends to its neighbors.
            about: float32 ``[n, d]``: a, the reference that each node has already and measures from.
            matrix: float64 ``[n, n]``, instead of the mixing matrix of the graph.
            trackers_at: float32 ``[n, d]``: the nodes' models, if trackers of the mean update are sent instead of models. Lies
                and rules keep separate states for trackers.
            vectors: number of vectors in a message; 0 if they were sent with the previous exchange.
        """
        at = about if trackers_at is None else trackers_at
        return self._exchange_values(values, about, at, matrix, trackers_at is not None, vectors=vectors)

    def of_parcels(
        self,
        updates: Tensor,
        parcel: Parcel,
        *,
        models: Tensor,
        matrix: Matrix | None = None,
    ) -> Tensor:
        """Aggregate at each node a parcel of its own update and the parcels that it receives, by the rule of the cell.

        $R(x_j : j = i or i hears j)$, measured from 0, as updates are; lies have to fit into the parcel as well.

        Args:
            updates: float32 ``[n, d]``, already packed.
            models: float32 ``[n, d]``: the current models of the nodes.
            matrix: as in `mix_values`.
        """
        return self._exchange_values(updates, torch.zeros_like(updates), models, matrix, False, parcel)

    def post_parcels(self, updates: Tensor, parcel: Parcel, *, models: Tensor) -> ParcelBroadcast:
        """A parcel of each node's update, sent now (`Traffic.queue_parcels`), received later; arguments as of `of_parcels`."""
        self._exchanges += 1
        zeros, matrix, acting = torch.zeros_like(updates), self.matrix, self._acting
        told = self._craft_broadcast(updates, zeros, models, False, parcel) if self._broadcast and acting else {}
        lies: dict[int, dict[int, Tensor]] = {}
        for node in sorted(set(range(self._n)) - acting) if acting else ():
            sent = self._collect_messages(
                Destination(node, matrix[node], zeros[node], models[node], False, parcel), updates, told
            )
            rows = zip(sent.senders, sent.updates, strict=True)
            lies[node] = {one: row.clone() for one, row in rows if one in sent.malicious}
            if self.adds_up:
                self._rules.outvoted += len(lies[node]) > self._setup.assume_f_among(len(sent.senders))
        return ParcelBroadcast(self._exchanges, updates, parcel, matrix, acting, lies)

    def aggregate_parcels(self, posted: ParcelBroadcast, came: NDArray[np.bool_], *, models: Tensor) -> Tensor:
        """float32 ``[n, d]``: aggregate at each node of the parcels that have just arrived; 0 if none has.

        If the rule `adds_up`, it is the sum by the graph's weights, $sum_j W_ij x_j$ over these j only; the node's own value
        replaces parcels that are not usable or were never sent. Otherwise all parcels have arrived, and it is $R(x_j)$.

        Args:
            came: bool ``[n, n]``: whether the parcel of node j (column) has arrived at node i (row).
            models: float32 ``[n, d]``: the current models of the nodes.
        """
        made, values = torch.zeros_like(posted.values), posted.values
        with self._setup.stopwatch.stage("aggregation"):
            summed = self.adds_up and not unusable_rows(values)
            if summed:
                made = self._sums(posted.weights * came, values)
            for node in np.flatnonzero(came.any(1)).tolist():
                if node in self._alone:
                    made[node] = values[node] * float(came[node, node])
                elif not self.adds_up:
                    sent = self._of_posted(posted, node, came[node], models)
                    place = Destination(node, posted.weights[node], made[node], models[node], False, posted.parcel)
                    made[node] = self._rules.aggregate_rows(place, sent, posted.exchange)
                elif not summed or posted.lies.get(node):
                    made[node] = self._sum_parcels(posted, node, came[node], models)
        return made

    def _of_posted(self, posted: ParcelBroadcast, node: int, came: NDArray[np.bool_], models: Tensor) -> SentRound:
        """The parcels that have arrived at a node, without those that were never sent."""
        lies = posted.lies.get(node, {})
        liars = posted.acting if node in posted.lies else frozenset()
        heard = np.flatnonzero(came).tolist()
        honest, lying = tuple(one for one in heard if one not in liars), tuple(one for one in heard if one in lies)
        rows = posted.values.new_empty(len(honest) + len(lying), posted.values.shape[1])
        sides = Sides.split_rows(self._setup.rng.child("order", posted.exchange, node), rows, honest, lying)
        sides.honest_rows.copy_(posted.values[list(honest)])
        for row, one in zip(sides.malicious_rows, lying, strict=True):
            row.copy_(lies[one])
        return SentRound(self._round, models[node], rows, sides.order, frozenset(lying))

    def _sum_parcels(self, posted: ParcelBroadcast, node: int, came: NDArray[np.bool_], models: Tensor) -> Tensor:
        """float32 ``[d]``: sum by the graph's weights of the parcels that have arrived at a node."""
        sent = self._of_posted(posted, node, came, models)
        bad = [sent.senders[row] for row in unusable_rows(sent.updates)]
        self._rules.not_finite.update(bad)
        own = posted.values[node]
        if unusable_rows(own[None]):
            return torch.zeros_like(own)
        sent = sent.without(bad)
        weights, kept = posted.weights[node], list(sent.senders)
        missing = float(weights[came].sum() - weights[kept].sum())
        return self._sums(weights[kept], sent.updates) + missing * own

    def by_links(self, updates: Tensor, parcels: Links, *, models: Tensor, matrix: Matrix) -> Tensor:
        """As `of_parcels`, with a parcel for each link; a node has the whole of its own update.

        A row of the matrix has the claims of the nodes: rules that use claimed examples get it, and the mean weighs by it.

        Args:
            parcels: (source, node) -> the part of the source's update that is sent to the node.
        """
        return self._exchange_values(updates, torch.zeros_like(updates), models, matrix, False, None, parcels)

    def mix_by_claims(self, values: Tensor, about: Tensor, matrix: Matrix) -> Tensor:
        """As `mix_values`, but a row of the matrix has the claims of the nodes, as in `by_links`."""
        return self._exchange_values(values, about, about, matrix, False, None, lambda source, node: None)

    def _exchange_values(
        self,
        values: Tensor,
        about: Tensor,
        at: Tensor,
        matrix: Matrix | None,
        trackers: bool,
        parcel: Parcel | None = None,
        links: Links | None = None,
        vectors: int = 1,
    ) -> Tensor:
        if matrix is None:
            matrix = self.traffic.reassign_weights(self.matrix, self._exchanges)
        self._exchanges += 1
        if vectors:
            self.traffic.send(matrix, parcel if links is None else links, vectors)
        values = self.exchange_values(values, about, at, matrix, trackers, parcel)
        if self._ear is not None and self._masks is None:
            self._ear.hear(values, matrix)
        said = self._craft_broadcast(values, about, at, trackers, parcel) if self._broadcast and self._acting else {}
        mixed = about.clone()
        with self._setup.stopwatch.stage("aggregation"):
            summed = self._summable_nodes(values, matrix) if links is None else []
            mixed[summed] = self._sums(matrix[summed], values)
            for node in sorted(set(self.here) - set(summed)):
                place = Destination(node, matrix[node], about[node], at[node], trackers, parcel, links)
                mixed[node] += self._aggregate_at_node(place, values, said)
        alone = sorted(self._alone)
        mixed[alone] = values[alone]
        return mixed

    def exchange_values(
        self, values: Tensor, about: Tensor, at: Tensor, matrix: Matrix, trackers: bool, parcel: Parcel | None
    ) -> Tensor:
        """float32 ``[n, d]``: the values known in this process after all have been sent."""
        return values

    def _sums(self, weights: Matrix, values: Tensor) -> Tensor:
        return torch.from_numpy(weights).to(values.dtype) @ values

    def _summable_nodes(self, values: Tensor, matrix: Matrix) -> list[int]:
        """Nodes with a weighted sum of honest values only as their aggregate: one matrix product serves all of them."""
        if self._masks is not None or not self.adds_up or unusable_rows(values):
            return []
        # Acting nodes know each other's lies and do not craft for one another, so they take the values as they are
        lied_to = (matrix[:, sorted(self._acting)] != 0).any(1)
        return [node for node in range(self._n) if node in self._acting or not lied_to[node]]

    def _aggregate_at_node(self, place: Destination, values: Tensor, said: Mapping[int, Tensor]) -> Tensor:
        """float32 ``[d]``: R of the node's own value and the received ones."""
        sent = self._collect_messages(place, values, said)
        if self._masks is not None:
            return self._of_masked(place, sent, self._masks)
        return self._rules.aggregate_rows(place, sent, self._exchanges)

    def _collect_messages(self, place: Destination, values: Tensor, said: Mapping[int, Tensor]) -> SentRound:
        """The node's own value and the received ones, relative to the node's reference."""
        node, weights = place.node, place.weights
        assert weights is not None
        heard = {int(other) for other in np.flatnonzero(weights)} | {node}
        lying = () if node in self._acting else tuple(sorted(heard & self._acting))
        honest = tuple(sorted(heard - set(lying)))
        if lying and self._broadcast:
            lying = tuple(one for one in lying if one in said)
        elif lying:
            lying = self._colluders(place).choose_senders(lying, self._round, place.model)
        rows = values.new_empty(len(honest) + len(lying), values.shape[1])
        sides = Sides.split_rows(self._setup.rng.child("order", self._exchanges, node), rows, honest, lying)
        torch.sub(values[list(honest)], place.about, out=sides.honest_rows)
        place.pack(sides.honest_rows, honest)
        if lying and self._broadcast:
            sides.malicious_rows.copy_(torch.stack([said[one] for one in lying]) - place.about)
        elif lying:
            self._craft(place, sides, values)
        return SentRound(self._round, place.model, rows, sides.order, frozenset(lying))

    def _of_masked(self, place: Destination, sent: SentRound, masks: MaskedSums) -> Tensor:
        """float32 ``[d]``: sum by the graph's weights; the node sees only its own value and the sum of the others."""
        node, weights = place.node, place.weights
        assert weights is not None
        # Senders measure from a vector that all know, the first model, since they do not know the receiver's
        public = torch.zeros_like(place.about) if place.trackers else self.start[0]
        rows = {one: place.about + row - public for one, row in zip(sent.senders, sent.updates, strict=True)}
        own = rows.pop(node)
        keys = masks.exchange_keys(sorted(rows))
        self._world.spent.add_bytes(keys, keys)
        given = {one: float(weights[one]) for one in rows}
        summed = masks.total(node, self._exchanges, rows, given, sent.malicious)
        if summed is None:
            self._rules.abandon(node)
            kept: Tensor = own + public - place.about
            return kept
        if self._ear is not None:
            self._ear.hear_sum(node, summed + sum(given.values()) * public)
        mixed: Tensor = (1 - sum(given.values())) * own + summed + public - place.about
        return mixed

    def _craft_broadcast(
        self, values: Tensor, about: Tensor, at: Tensor, trackers: bool, parcel: Parcel | None
    ) -> dict[int, Tensor]:
        """The message of each malicious node if all its neighbors receive the same; none of silent nodes."""
        honest = list(self.honest)
        place = Destination(EVERYBODY, None, about[honest].mean(0), at[honest].mean(0), trackers, parcel)
        heard = self._colluders(place).choose_senders(tuple(sorted(self._acting)), self._round, place.model)
        if not heard:
            return {}
        rows = values.new_empty(len(honest) + len(heard), values.shape[1])
        sides = Sides.split_rows(self._setup.rng.child("order", self._exchanges), rows, self.honest, heard)
        torch.sub(values[honest], place.about, out=sides.honest_rows)
        self._craft(place, sides, values)
        return {one: place.about + row for one, row in zip(heard, sides.malicious_rows, strict=True)}

    def _craft(self, place: Destination, sides: Sides, values: Tensor) -> None:
        """Fill the malicious rows with messages crafted for one honest node, or for all."""
        links: dict[str, Any] = {}
        seat = NodeContext(0, None)  # any honest node, if all receive the same
        if place.weights is not None:
            mixing = place.mixing((*sides.honest, *sides.malicious))
            links = {"receiver": place.node, "mixing": mixing, "slowest": self._slowest(place.node, values)}
            weighs = weighs_by_graph(self._setup.cell.pipeline)
            seat = NodeContext(sides.honest.index(place.node), mixing if weighs else None)
        states = self._rules.states.get(place.key, ())
        known = partial(ColluderPipeline, self._setup, place.model, self._round, states, seat=seat)
        with self._setup.stopwatch.stage("attack"):
            self._colluders(place).craft(
                place.model,
                self._round,
                sides,
                known,
                measure=False,
                links=links,
                asked={TRACKERS} if place.trackers else (),
            )
        if place.parcel is not None:
            # A lie is no larger than an honest parcel: the receiver would see it at once
            sides.malicious_rows.copy_(place.parcel.packed(sides.malicious_rows))
        place.pack(sides.malicious_rows, sides.malicious)

    def _slowest(self, node: int, values: Tensor) -> Tensor:
        """float32 ``[d]``: component of a node's value on which honest nodes agree last."""
        along = torch.from_numpy(self._eigenvector).to(values.dtype)
        return along[self.honest.index(node)] * (along @ values[list(self.honest)])

    @cached_property
    def _eigenvector(self) -> Matrix:
        """float64 ``[h]``: Fiedler vector of the honest subgraph (second smallest eigenvalue of the Laplacian)."""
        return self.topology.among(self.honest).slowest

    def _colluders(self, place: Destination) -> MaliciousClients:
        """The malicious clients for one destination, with a memory of what they did to it."""
        if place.key not in self._working:
            self._working[place.key] = self.clients.colluders()
        return self._working[place.key]

    def report(self, round: int, models: Tensor) -> RoundReport:
        """The report of a round after which these are the nodes' models, float32 ``[n, d]``."""
        setup, arrived, own = self._setup, tuple(self._arrived), models[list(self.honest)]
        center, lying = own.mean(0), self._acting | self._alone
        fates = dict.fromkeys(sorted(self._rules.not_finite), Fate.NOT_FINITE)
        received = ReceivedRound(
            rows=own[:0],  # each node has received others
            behind=tuple((node,) for node in arrived),
            samples=None,
            assumed_f=setup.assume_f_among(self._n),
            clients=arrived,
            sent=SentRound(round, center, own[:0], arrived, lying, fates),
            masked=None if self._masks is None else self._masks.report(),
        )
        found = replace(
            report_round(setup, self.clients, center, round, received, None, due=False),
            chosen=tuple(range(self._n)),
            watched=() if self._ear is None else self._ear.observe_round(models),
            moment=self.traffic.moment(len(arrived), lying),
            nodes=self.traffic.report(self._rules.outvoted, self._rules.abandoned),
        )
        return by_node(setup, self.clients, own, self.honest, found) if setup.due(round) else found
