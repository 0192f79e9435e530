"""Messages of nodes without a server in simulated time: waiting, bandwidth and losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedguard.architectures.gossip.parcels import Links, Parcel
from fedguard.architectures.gossip.place import Matrix
from fedguard.architectures.times import moment
from fedguard.contracts import LocalTraining, NodesReport, RoundTiming, Setup
from fedguard.simulated.topology import Topology
from fedguard.simulated.world import World


class Traffic:
    """The clocks and the links of all nodes of one training.

    Attributes:
        messages: number of messages sent since the start.
    """

    def __init__(self, setup: Setup, world: World, topology: Topology) -> None:
        self._plan, self._sizes, self.world, self._n = setup.local_plan, setup.task.sizes, world, topology.nodes
        self._links = tuple((int(source), int(node)) for node, source in np.argwhere(topology.adjacency))
        self._lost = np.zeros((self._n, self._n), bool)
        self._bytes = np.zeros((self._n, self._n), np.int64)
        self._of_messages = set[int]()
        self._clocks, self._free = [0.0] * self._n, [0.0] * self._n
        self._ended: list[LocalTraining] = []
        self.messages = 0

    def begin(self) -> None:
        """A round begins."""
        self._ended = []

    def advance_clocks(self, number: int, batches: Sequence[int] | None) -> None:
        """Advance all clocks by training ``number``, with ``batches`` examples per step if not the plan's."""
        for node, began in enumerate(self._clocks):
            more = 1.0
            if batches is not None:
                size = self._sizes[node]
                more = replace(self._plan, batch_size=batches[node]).work(size) / self._plan.work(size)
            self._clocks[node] += self.world.compute(node, number, more)
            self._ended.append(LocalTraining(node, began, self._clocks[node]))

    def seconds(self, batches: Sequence[int]) -> float:
        """Seconds of the slowest node's training with these batches, without the random factors of each training."""
        work = [
            replace(self._plan, batch_size=batch).work(size) for batch, size in zip(batches, self._sizes, strict=True)
        ]
        return max(amount / self.world.rates[node] for node, amount in enumerate(work))

    def room(self, seconds: float) -> Matrix:
        """float64 ``[n, n]``: bytes from node j (column) to node i (row) in ``seconds``, if all send to all."""
        world, others, nodes = self.world, self._n - 1, range(self._n)

        def fit(source: int, node: int) -> float:
            whole = world.time_transmission(source, node, world.size, others, others)
            return seconds / whole * world.size if whole > 0 else np.inf

        return np.array([[fit(source, node) for source in nodes] for node in nodes])

    def drop_messages(self, matrix: Matrix, exchange: int) -> Matrix:
        """float64 ``[n, n]``: the matrix without the messages of this exchange that the network loses."""
        if self.world.network.link.loss:
            for node, source in zip(*np.nonzero(matrix), strict=True):
                if source != node and self.world.loses(int(source), exchange * self._n + int(node)):
                    self._lost[node, source] = True
        return np.where(self._lost, 0.0, matrix)

    def reassign_weights(self, matrix: Matrix, exchange: int) -> Matrix:
        """float64 ``[n, n]``: the matrix with the weight of lost messages moved to the node's own value."""
        arrived = self.drop_messages(matrix, exchange)
        # Rows must still sum to 1: without this a lost message would pull the node toward 0
        own: Matrix = arrived + np.diag(np.where(self._lost, matrix, 0.0).sum(1))
        return own

    def send(self, matrix: Matrix, sent: Parcel | Links | None, vectors: int = 1) -> None:
        """Advance the clocks by an exchange: each node waits for its neighbors only.

        Args:
            sent: content of a message, or a function of its link; whole vectors if None.
            vectors: number of whole vectors in a message.
        """
        # A lost message has taken bandwidth, and its receiver waits until it would have come
        heard = ((matrix != 0) | self._lost) & ~np.eye(self._n, dtype=bool)
        self._lost = np.zeros_like(self._lost)
        sends, hears, began = heard.sum(0), heard.sum(1), list(self._clocks)
        for node in range(self._n):
            for source in np.flatnonzero(heard[node]):
                parcel = sent(int(source), node) if callable(sent) else sent
                size = vectors * self.world.size if parcel is None else parcel.size
                seconds = self.world.send(int(source), node, size, int(sends[source]), int(hears[node]))
                self._bytes[source, node] += size
                self._of_messages.add(size)
                self._clocks[node] = max(self._clocks[node], began[source] + seconds)
        self.messages += int(heard.sum())

    @property
    def clocks(self) -> NDArray[np.float64]:
        """float64 ``[n]``: simulated seconds at which each node has finished what it has begun."""
        return np.array(self._clocks)

    def queue_parcels(self, parcel: Parcel) -> Matrix:
        """float64 ``[n, n]``: arrival time of a parcel of node j (column) at node i (row); its own arrives at once.

        Each node sends it to all as soon as it has computed and its link has sent all earlier parcels. No node waits for it.
        """
        arrivals, size, others = np.full((self._n, self._n), -np.inf), parcel.size, self._n - 1
        for source in range(self._n):
            self._free[source] = began = max(self._free[source], self._clocks[source])
            for node in set(range(self._n)) - {source}:
                arrivals[node, source] = began + self.world.send(source, node, size, others, others)
                # Without the latency: a link is free once the last byte has left, not when it has arrived
                left = began + self.world.time_transmission(source, node, size, others, others)
                self._free[source] = max(self._free[source], left)
        self.messages += self._n * (self._n - 1)
        return arrivals

    def moment(self, arrived: int, acting: frozenset[int]) -> RoundTiming:
        """Time at which the last node has finished the round, and resources used so far.

        Args:
            arrived: number of trainings that ended in the round.
            acting: malicious nodes that act.
        """
        return moment(self.world, max(self._clocks), (0,) * arrived, acting=acting, trainings=tuple(self._ended))

    def report(self, outvoted: int, abandoned: int) -> NodesReport:
        """Traffic since the start; bytes of each link only if messages and links differ."""
        found = tuple(int(self._bytes[link]) for link in self._links)
        unlike = len(self._of_messages) > 1 and len(set(found)) > 1
        return NodesReport(
            self.messages, self._links, outvoted, abandoned, traffic=found if unlike else (), backlog=self._backlog()
        )

    def _backlog(self) -> float | None:
        """Seconds that the longest queue still takes to send; None without queues."""
        if not any(self._free):
            return None
        return max(max(0.0, free - now) for free, now in zip(self._free, self._clocks, strict=True))
