"""The nodes of a training without a server: how they train, what they tell each other, and what each makes of what it hears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.aggregation import aggregate
from fedguard.architectures.by_node import by_node
from fedguard.architectures.clients import Clients
from fedguard.architectures.gossip.listening import Ear
from fedguard.architectures.gossip.masked import MaskedSums
from fedguard.architectures.gossip.parcels import Links, Parcel
from fedguard.architectures.malicious import MaliciousClients
from fedguard.architectures.root import loss_on
from fedguard.architectures.rule_context import KnownToColluders, Seat, noise_of, rule_context
from fedguard.architectures.sides import Sides
from fedguard.architectures.times import moment, world
from fedguard.contracts import Moment, NodesReport, RoundReport, Setup, Span, State, Wire
from fedguard.contracts.returned import broken, returned
from fedguard.errors import PreconditionError
from fedguard.kernels import unusable_rows
from fedguard.simulated.topology import Topology

Matrix = NDArray[np.float64]

#: In the place of a node: all who hear a malicious one, where they hear the same.
EVERYBODY = -1

#: A node, whether it hears trackers, and the kind of parcel: under what lies and rules remember it.
Key = tuple[int, bool, int]


class Nodes:
    """All nodes of one training.

    A malicious node does not train while it acts. What it sends to an honest node is made for that node's model, out of what
    the honest ones among its neighbours send; for nodes that hear the same (`broadcast`), for the mean of all honest ones.

    Attributes:
        start: float32 ``[n, d]``: the models before the first round, all alike.
        topology: with its nodes numbered as the clients are.
        honest: the nodes that never lie.
    """

    def __init__(self, setup: Setup, topology: Topology, broadcast: bool, masks: MaskedSums | None = None) -> None:
        self._setup, self.topology, self._broadcast = setup, topology, broadcast
        self._n = topology.nodes
        #: The nodes that are in this process: all of them, unless each is a process of its own.
        self.here: tuple[int, ...] = tuple(range(self._n))
        malicious = setup.malicious if setup.attack else frozenset()
        self.honest = tuple(node for node in range(self._n) if node not in malicious)
        self.clients = Clients(setup)
        self.start = setup.task.initial_model(setup.rng.child("model")).expand(self._n, -1).clone()
        self._links = tuple((int(source), int(node)) for node, source in np.argwhere(topology.heard))
        self._world = world(setup, self.start[0])
        self._sizes = set[int]()
        self._lost = np.zeros((self._n, self._n), bool)
        self._bytes = np.zeros((self._n, self._n), np.int64)
        self._clocks, self._free = [0.0] * self._n, [0.0] * self._n
        self._round, self._trainings, self._exchanges = 0, 0, 0
        self._working: dict[Key, MaliciousClients] = {}
        self._states: dict[Key, tuple[State, ...]] = {}
        self._acting: frozenset[int] = frozenset()
        self._alone: frozenset[int] = frozenset()
        self._messages, self._outvoted, self._abandoned = 0, 0, 0
        self._not_finite: set[int] = set()
        self._arrived: list[int] = []
        self._spans: list[Span] = []
        self._masks, self._ear = masks, Ear(setup, masks is not None) if setup.observer else None

    def begin(self, round: int) -> None:
        """A round begins (from 1)."""
        setup = self._setup
        self._round, self._acting, self._alone = round, setup.acting(round), frozenset()
        if setup.attack is not None and not returned(setup.attack, "mixes", setup.attack.mixes(), bool):
            self._acting, self._alone = self._alone, self._acting
        self._outvoted, self._abandoned, self._not_finite = 0, 0, set()
        self._arrived, self._spans = [], []
        if self._ear is not None:
            self._ear.begin(round)

    @property
    def matrix(self) -> Matrix:
        """float64 ``[n, n]``: what each node gives to each value in the next exchange."""
        return self.topology.at(self._exchanges)

    @property
    def claims(self) -> Matrix:
        """float64 ``[n]``: how many examples each node says that it has."""
        return np.array(self._setup.claims, dtype=np.float64)

    @property
    def rates(self) -> Matrix:
        """float64 ``[n]``: how many examples a second each node says that it trains on; all alike where time has no limit."""
        rates = [self._world.rate(node) for node in range(self._n)]
        limits = [rate for rate in rates if rate < inf]
        most = max(limits, default=1.0)
        return np.array([self._said("claim_rate", node, min(rate, most)) for node, rate in enumerate(rates)])

    def examples(self, batches: Sequence[int]) -> Matrix:
        """float64 ``[n]``: on how many examples a step each node says that it trained, where it was to take so many."""
        taken = map(min, batches, self._setup.task.sizes)
        return np.array([self._said("claim", node, number) for node, number in enumerate(taken)])

    def weights(self, own: Matrix) -> Matrix:
        """float64 ``[n]``: which push-sum weight each node says that it has, of ``[n]``."""
        return np.array([self._said("claim_weight", node, float(weight)) for node, weight in enumerate(own)])

    def losses(self, models: Tensor) -> Matrix:
        """float64 ``[n]``: the loss that each node tells of its model, of ``[n, d]``; infinity if it is not finite."""
        told = [self._said("claim_loss", node, loss) for node, loss in enumerate(self.own_losses(models))]
        return np.array([loss if isfinite(loss) else inf for loss in told])

    def own_losses(self, models: Tensor) -> Matrix:
        """float64 ``[n]``: the mean loss of each node's model on its own examples; infinity if not finite."""
        losses = [loss_on(self._setup, node, model) for node, model in enumerate(models)]
        return np.array([loss if isfinite(loss) else inf for loss in losses])

    @property
    def batch_size(self) -> int:
        """Examples per step of a node that takes as many as all others."""
        size = self._setup.local_plan.batch_size
        assert size is not None
        return size

    def seconds(self, batches: Sequence[int]) -> float:
        """What the slowest node takes for its training with such batches, but for what is drawn for each training."""
        plan, sizes = self._setup.local_plan, self._setup.task.sizes
        work = [replace(plan, batch_size=batch).work(size) for batch, size in zip(batches, sizes, strict=True)]
        return max(amount / self._world.rate(node) for node, amount in enumerate(work))

    def room(self, seconds: float) -> Matrix:
        """float64 ``[n, n]``: how many bytes go from node j (column) to node i (row) in so much time, if all send to all."""
        others, n = self._n - 1, range(self._n)
        return np.array([[self._world.bytes_within(seconds, j, i, others, others) for j in n] for i in n])

    def _said(self, method: str, node: int, truth: float) -> float:
        """What a node says of itself; a malicious one, while it acts, what its attack says."""
        attack = self._setup.attack
        if attack is None or node not in self._acting:
            return truth
        said = returned(attack, method, getattr(attack, method)(truth), (int, float))
        if not said >= 0 or (said in (0, inf) and method != "claim_loss"):
            raise broken(attack, f"{method}: expected a number above 0; got {said}")
        return float(said)

    def arrived(self, matrix: Matrix) -> Matrix:
        """float64 ``[n, n]``: the same without what the network loses of the messages of this exchange."""
        if self._world.network.link.loss:
            for node, source in zip(*np.nonzero(matrix), strict=True):
                if source != node and self._world.drops(int(source), self._exchanges * self._n + int(node)):
                    self._lost[node, source] = True
        return np.where(self._lost, 0.0, matrix)

    def updates(self, models: Tensor, batches: Sequence[int] | None = None) -> Tensor:
        """float32 ``[n, d]``: what each node's next local training moves it by from its own model, ``[n, d]`` too.

        Args:
            batches: each node's examples per step, if not the plan's; it takes as much longer.
        """
        self._trainings += 1
        training = [node for node in self.here if node not in self._acting]
        rows = torch.zeros_like(models)
        with self._setup.stopwatch.stage("training"):
            trained = rows[training]
            sizes = None if batches is None else dict(enumerate(batches))
            self.clients.train_honest(models[training], self._trainings, tuple(training), trained, batches=sizes)
            rows[training] = trained
        plan = self._setup.local_plan
        for node, began in enumerate(self._clocks):
            more = 1.0
            if batches is not None:
                size = self._setup.task.sizes[node]
                more = replace(plan, batch_size=batches[node]).work(size) / plan.work(size)
            self._clocks[node] += self._world.compute(node, self._trainings, more)
            self._spans.append(Span(node, began, self._clocks[node], "arrived"))
        self._arrived.extend(range(self._n))
        if self._ear is not None:
            self._ear.trained(models, rows)
        return rows

    def mixed(
        self, values: Tensor, about: Tensor, *, matrix: Matrix | None = None, trackers_at: Tensor | None = None
    ) -> Tensor:
        """What each node makes of its own value and those that it hears, by the rule of the cell.

        $v_i <- a_i + R(v_j - a_i : j = i or i hears j)$; the mean weighs by row i of the matrix. The weight of what
        is lost on its way is the node's own value's; a node goes on when it would have come.

        Args:
            values: float32 ``[n, d]``: what each node sends to its neighbours.
            about: float32 ``[n, d]``: a, what each node measures from, which it has already.
            matrix: float64 ``[n, n]``, instead of that of the graph.
            trackers_at: float32 ``[n, d]``: the nodes' models, where trackers of the mean update are sent and no models. Lies
                and rules remember these by themselves.
        """
        return self._exchanged(
            values, about, about if trackers_at is None else trackers_at, matrix, trackers_at is not None
        )

    @property
    def earliest(self) -> float:
        """When the first of the nodes is done with what it has begun, in simulated seconds."""
        return min(self._clocks)

    def queued(self, parcel: Parcel) -> float:
        """When the last message of such a parcel, of each node to all, has arrived, if each link sends one after the other.

        No node waits for it.
        """
        others, last = range(self._n), 0.0
        latency = self._world.network.link.latency
        for source in others:
            sends = [
                self._world.between(source, node, self._n - 1, self._n - 1, parcel.size)
                for node in others
                if node != source
            ]
            began = max(self._free[source], self._clocks[source])
            self._free[source] = began + max(sends, default=latency) - latency
            last = max(last, self._free[source] + latency)
        self._messages += self._n * (self._n - 1)
        return last

    def of_parcels(
        self,
        updates: Tensor,
        parcel: Parcel,
        *,
        models: Tensor,
        matrix: Matrix | None = None,
        queued: bool = False,
    ) -> Tensor:
        """What each node makes of a parcel of its own update and those that it hears, by the rule of the cell.

        $R(x_j : j = i or i hears j)$, measured from 0, as updates are; lies have to fit into the parcel too.

        Args:
            updates: float32 ``[n, d]``, packed already.
            models: float32 ``[n, d]``: those that the nodes now have.
            matrix: as in `mixed`.
            queued: whether it was sent before, by `queued`.
        """
        zeros = torch.zeros_like(updates)
        return self._exchanged(updates, zeros, models, matrix, False, parcel, sent=queued)

    def by_links(self, updates: Tensor, parcels: Links, *, models: Tensor, matrix: Matrix) -> Tensor:
        """As `of_parcels`, with a parcel for each link; a node has its own update whole.

        A row of the matrix is what nodes claim: rules that go by claims of examples are told it, and the mean weighs by it.

        Args:
            parcels: (source, node) -> what of the source's update is sent to the node.
        """
        return self._exchanged(updates, torch.zeros_like(updates), models, matrix, False, None, parcels)

    def merged(self, values: Tensor, about: Tensor, matrix: Matrix) -> Tensor:
        """As `mixed`, where a row of the matrix is what nodes claim, as in `by_links`."""
        return self._exchanged(values, about, about, matrix, False, None, lambda source, node: None)

    def _exchanged(
        self,
        values: Tensor,
        about: Tensor,
        at: Tensor,
        matrix: Matrix | None,
        trackers: bool,
        parcel: Parcel | None = None,
        links: Links | None = None,
        sent: bool = False,
    ) -> Tensor:
        if matrix is None:
            matrix = self.arrived(self.matrix)
            matrix = matrix + np.diag(np.where(self._lost, self.matrix, 0.0).sum(1))
        self._exchanges += 1
        if not sent:
            self._send(matrix, parcel if links is None else links)
        values = self.delivered(values, about, at, matrix, trackers, parcel)
        if self._ear is not None and self._masks is None:
            self._ear.hear(values, matrix)
        said = self._said_to_all(values, about, at, trackers, parcel) if self._broadcast and self._acting else {}
        mixed = about.clone()
        with self._setup.stopwatch.stage("aggregation"):
            summed = self._summed(values, matrix) if links is None else []
            mixed[summed] = self._sums(matrix[summed], values)
            for node in sorted(set(self.here) - set(summed)):
                place = Place(node, matrix[node], about[node], at[node], trackers, parcel, links)
                mixed[node] += self._made(place, values, said)
        alone = sorted(self._alone)
        mixed[alone] = values[alone]
        return mixed

    def delivered(
        self, values: Tensor, about: Tensor, at: Tensor, matrix: Matrix, trackers: bool, parcel: Parcel | None
    ) -> Tensor:
        """float32 ``[n, d]``: the values as far as they are in this process, once all have been sent."""
        return values

    def _sums(self, weights: Matrix, values: Tensor) -> Tensor:
        return torch.from_numpy(weights).to(values.dtype) @ values

    def _summed(self, values: Tensor, matrix: Matrix) -> list[int]:
        """The nodes whose rule is a sum by the graph's weights of values that are all honest: one product for all of them."""
        pipeline = self._setup.pipeline
        if self._masks is not None or pipeline.mixings or not pipeline.rule.by_graph or unusable_rows(values):
            return []
        lied_to = (matrix[:, sorted(self._acting)] != 0).any(1)
        return [node for node in range(self._n) if node in self._acting or not lied_to[node]]

    def _send(self, matrix: Matrix, sent: Parcel | Links | None) -> None:
        """Each node waits for its neighbours, and no other.

        Args:
            sent: what a message holds, by its link if that counts; a whole vector if None.
        """
        heard = ((matrix != 0) | self._lost) & ~np.eye(self._n, dtype=bool)
        self._lost = np.zeros_like(self._lost)
        sends, hears, began = heard.sum(0), heard.sum(1), list(self._clocks)
        for node in range(self._n):
            for source in np.flatnonzero(heard[node]):
                parcel = sent(int(source), node) if callable(sent) else sent
                size = self._world.size if parcel is None else parcel.size
                seconds = self._world.between(int(source), node, int(sends[source]), int(hears[node]), size)
                self._bytes[source, node] += size
                self._sizes.add(size)
                self._clocks[node] = max(self._clocks[node], began[source] + seconds)
        self._messages += int(heard.sum())

    def _made(self, place: Place, values: Tensor, said: Mapping[int, Tensor]) -> Tensor:
        """float32 ``[d]``: R of what one node has and hears."""
        wire = self._heard(place, values, said)
        return self._aggregated(place, wire) if self._masks is None else self._of_masked(place, wire, self._masks)

    def _heard(self, place: Place, values: Tensor, said: Mapping[int, Tensor]) -> Wire:
        """What one node has and hears, measured from where it measures from."""
        node, weights = place.node, place.weights
        assert weights is not None
        heard = {int(other) for other in np.flatnonzero(weights)} | {node}
        lying = () if node in self._acting else tuple(sorted(heard & self._acting))
        honest = tuple(sorted(heard - set(lying)))
        if lying and self._broadcast:
            lying = tuple(one for one in lying if one in said)
        elif lying:
            lying = self._colluders(place).heard(lying, self._round, place.model)
        rows = values.new_empty(len(honest) + len(lying), values.shape[1])
        sides = Sides.drawn(self._setup.rng.child("order", self._exchanges, node), rows, honest, lying)
        torch.sub(values[list(honest)], place.about, out=sides.honest_rows)
        place.pack(sides.honest_rows, honest)
        if lying and self._broadcast:
            sides.malicious_rows.copy_(torch.stack([said[one] for one in lying]) - place.about)
        elif lying:
            self._craft(place, sides, values)
        return Wire(rows, sides.order, frozenset(lying))

    def _of_masked(self, place: Place, wire: Wire, masks: MaskedSums) -> Tensor:
        """float32 ``[d]``: the sum by the graph's weights, of which the node sees its own value and the sum of the others."""
        node, weights = place.node, place.weights
        assert weights is not None
        public = torch.zeros_like(place.about) if place.trackers else self.start[0]
        rows = {one: place.about + row - public for one, row in zip(wire.clients, wire.updates, strict=True)}
        own = rows.pop(node)
        self._world.carry(masks.introduced(sorted(rows)))
        given = {one: float(weights[one]) for one in rows}
        summed = masks.total(node, self._exchanges, rows, given, wire.malicious)
        if summed is None:
            self._abandoned += node not in self._acting
            kept: Tensor = own + public - place.about
            return kept
        if self._ear is not None:
            self._ear.hear_sum(node, summed + sum(given.values()) * public)
        mixed: Tensor = (1 - sum(given.values())) * own + summed + public - place.about
        return mixed

    def _said_to_all(
        self, values: Tensor, about: Tensor, at: Tensor, trackers: bool, parcel: Parcel | None
    ) -> dict[int, Tensor]:
        """What each malicious node says where all of its neighbours hear the same; nothing of one that is silent."""
        honest = list(self.honest)
        place = Place(EVERYBODY, None, about[honest].mean(0), at[honest].mean(0), trackers, parcel)
        heard = self._colluders(place).heard(tuple(sorted(self._acting)), self._round, place.model)
        if not heard:
            return {}
        rows = values.new_empty(len(honest) + len(heard), values.shape[1])
        sides = Sides.drawn(self._setup.rng.child("order", self._exchanges), rows, self.honest, heard)
        torch.sub(values[honest], place.about, out=sides.honest_rows)
        self._craft(place, sides, values)
        return {one: place.about + row for one, row in zip(heard, sides.malicious_rows, strict=True)}

    def _craft(self, place: Place, sides: Sides, values: Tensor) -> None:
        """Fill the malicious rows with what is made for one honest node, or for all."""
        links: dict[str, Any] = {}
        seat = Seat(0, None)  # of any honest node, where all of them hear the same
        if place.weights is not None:
            mixing = place.mixing((*sides.honest, *sides.malicious))
            links = {"receiver": place.node, "mixing": mixing, "slowest": self._slowest(place.node, values)}
            seat = Seat(sides.honest.index(place.node), None if self._setup.pipeline.mixings else mixing)
        states = self._states.get(place.key, ())
        known = partial(KnownToColluders, self._setup, place.model, self._round, states, seat=seat)
        with self._setup.stopwatch.stage("attack"):
            self._colluders(place).craft(
                place.model, self._round, sides, known, measure=False, links=links, trackers=place.trackers
            )
        if place.parcel is not None:
            sides.malicious_rows.copy_(place.parcel.packed(sides.malicious_rows))
        place.pack(sides.malicious_rows, sides.malicious)

    def _slowest(self, node: int, values: Tensor) -> Tensor:
        """float32 ``[d]``: the part of a node's value that honest nodes come to agree on last."""
        along = torch.from_numpy(self._eigenvector).to(values.dtype)
        return along[self.honest.index(node)] * (along @ values[list(self.honest)])

    @cached_property
    def _eigenvector(self) -> Matrix:
        """float64 ``[h]``: of the second smallest eigenvalue of the Laplacian of the honest nodes' weights for each other."""
        return self.topology.among(self.honest).slowest

    def _colluders(self, place: Place) -> MaliciousClients:
        """The malicious nodes as they work on one honest node; they remember what they did to it."""
        if place.key not in self._working:
            self._working[place.key] = self.clients.colluders()
        return self._working[place.key]

    def _aggregated(self, place: Place, wire: Wire) -> Tensor:
        """float32 ``[d]``: R of these rows, all usable; where it cannot run on them, the node's own."""
        setup, node = self._setup, place.node
        told = setup.told_among(len(wire.clients))
        bad = [wire.clients[row] for row in unusable_rows(wire.updates)]
        self._not_finite.update(bad)
        if node in bad:
            return torch.zeros_like(place.about)
        wire, told = wire.without(bad), max(0, told - len(bad))
        own = wire.clients.index(node)
        if node not in self._acting:
            self._outvoted += len(wire.malicious & set(wire.clients)) > told
        context = rule_context(setup, place.model, self._round, told).narrowed(
            "node",
            setup.rule_sees,
            rng=setup.rng.child("rule", self._exchanges, "node", node),
            clients=wire.clients,
            samples=self._samples(place, wire.clients),
            noise=noise_of(setup, wire.clients),
            own=own,
            mixing=None if setup.pipeline.mixings else place.mixing(wire.clients),
            root=wire.updates[own],
            root_loss=partial(loss_on, setup, node),
        )
        try:
            found = aggregate(setup.pipeline, wire.updates, context, self._states.get(place.key, ()))
        except PreconditionError:
            self._abandoned += node not in self._acting
            return wire.updates[own].clone()
        self._states[place.key] = found.states
        return found.vector

    def _samples(self, place: Place, clients: Sequence[int]) -> Tensor:
        """float64 ``[n]``: how many examples each of them claims, or what share of all in this exchange."""
        claims: Sequence[float] = self._setup.claims
        if place.links is not None and place.weights is not None:
            claims = place.weights.tolist()
        return torch.tensor([claims[client] for client in clients], dtype=torch.float64)

    def moment(self) -> Moment:
        """When the last node is done with the round, and what was spent up to then."""
        ages = (0,) * len(self._arrived)
        acting = self._acting | self._alone
        return moment(self._world, max(self._clocks), ages, acting=acting, spans=tuple(self._spans))

    def _backlog(self) -> float | None:
        """Seconds that the longest queue still takes to be sent; None where nothing queues."""
        if not any(self._free):
            return None
        return max(max(0.0, free - now) for free, now in zip(self._free, self._clocks, strict=True))

    def _traffic(self) -> tuple[int, ...]:
        """Bytes over each link since the start; nothing where messages or links are all alike."""
        found = tuple(int(self._bytes[link]) for link in self._links)
        return found if len(self._sizes) > 1 and len(set(found)) > 1 else ()

    def report(self, round: int, models: Tensor) -> RoundReport:
        """The report of a round after which these are the nodes' models, float32 ``[n, d]``."""
        setup, own = self._setup, models[list(self.honest)]
        colluders = [*self._working.values(), self.clients.malicious]
        planted = next((trigger for one in colluders if (trigger := one.planted()) is not None), None)
        centre, due = own.mean(0), setup.due(round)
        found = RoundReport(
            round=round,
            model=centre,
            clients=tuple(self._arrived),
            malicious=self._acting | self._alone,
            behind=tuple((node,) for node in self._arrived),
            told=setup.told_among(self.topology.nodes),
            not_finite=tuple(sorted(self._not_finite)),
            chosen=tuple(range(self.topology.nodes)),
            planted=planted,
            notes=colluders[0].notes(),
            moment=self.moment(),
            nodes=NodesReport(
                self._messages,
                self._links,
                self._outvoted,
                self._abandoned,
                traffic=self._traffic(),
                backlog=self._backlog(),
            ),
            masked=None if self._masks is None else self._masks.report(),
            watched=None if self._ear is None else self._ear.watched(models),
        )
        return by_node(setup, self.clients, own, self.honest, found) if due else found


@dataclass(frozen=True, eq=False)
class Place:
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
