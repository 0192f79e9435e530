"""Base of all decentralized algorithms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le
from torch import Tensor

from fedguard.architectures.gossip.listening import GossipListeners, Symbols
from fedguard.architectures.gossip.masked import MaskedSums
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.contracts import (
    Architecture,
    Cell,
    Exposure,
    InferenceAttack,
    Listeners,
    NonNegativeInt,
    Participation,
    Pipeline,
    PoisonAttack,
    PositiveFloat,
    RoundReport,
    Seating,
    Setup,
    Share,
    Sight,
    scale_assumed_f,
)
from fedguard.contracts.channels import MIXING
from fedguard.errors import ConfigError, PreconditionError
from fedguard.secagg.encoding import Encoding
from fedguard.simulated.graph_file import digest
from fedguard.simulated.topology import GraphName, Places, Topology, assign_positions, lookouts, topology

#: Rounds for which `_leaks` computes what masked sums reveal.
LISTENED = 3


@dataclass(frozen=True, kw_only=True)
class Gossip(Architecture):
    """Each node has a model of its own, hears its neighbors in a graph, and aggregates for itself.

    The rule of the cell runs at each node, on its own value and the received ones, relative to the node's model; the mean
    weighs them by the mixing matrix W. A node's clean data are its own examples, and its root update is its own update. A node
    waits for its neighbors only. Malicious nodes send each honest neighbor another message, crafted for this neighbor. Metrics
    are means over honest nodes.

    Args:
        graph: the links. Undirected, with Metropolis-Hastings weights: ``ring``, ``torus``, ``star``, ``complete``,
            ``erdos_renyi``. Directed, with equal weights: ``directed_ring``, ``exponential`` (from the nodes 1, 2, 4, ...
            positions before), ``one_peer_exponential`` (from one of these after another). Or ``none``, or the links of a
            ``file``.
        file: comma-separated values under the header ``node,neighbor``, a row for each link over which the node receives, or
            ``node,neighbor,weight`` for your own W. Rows of W sum to 1; what is missing is the weight of the node's own value.
            The path is relative to the folder in which ``fedguard`` was started.
        p: link probability of ``erdos_renyi``. The graph is drawn once and does not depend on the seed of the trial.
        graph_seed: seed of this draw.
        weight: k of $W_k = k W + (1 - k) I$.
        places: positions of malicious nodes: ``drawn``, ``in_order`` of the clients' numbers, ``clustered``, at the positions
            of ``highest_degree``, or at a ``cut`` that separates the others.
        at: explicit positions of all malicious nodes instead, by their numbers in the graph from 0, such as 0 for the center
            of a star. Honest nodes get drawn positions.
        broadcast: whether all neighbors of a node receive the same message, as by radio.
        masks: bits of a coordinate, sign included, if the neighbors of a node add pairwise masks that cancel in their weighted
            sum modulo $2^32$; None for no masks.
        clip: under masks, the largest absolute value of a coordinate that an honest node sends, relative to the first model.
    """

    in_time = True
    channels = frozenset({MIXING})
    #: Whether it needs a doubly stochastic W: rows and columns sum to 1.
    both_ways: ClassVar[bool] = True
    #: Whether it tolerates lost messages: it sends values instead of differences, or models from time to time.
    stands_loss: ClassVar[bool] = False
    #: Whether nodes exchange whole vectors only, so that it also runs on symbols (`Symbols`).
    whole: ClassVar[bool] = False

    graph: GraphName = "ring"
    p: Share = 0.3
    graph_seed: NonNegativeInt = 0
    file: str | None = None
    weight: Share = 1.0
    places: Places = "drawn"
    at: tuple[NonNegativeInt, ...] | None = None
    broadcast: bool = False
    masks: Annotated[int, Ge(2), Le(24)] | None = None
    clip: PositiveFloat | None = None

    @property
    def exposes(self) -> Exposure:  # type: ignore[override]
        """What each node sees for its rule, and what malicious nodes see."""
        seen = Sight.SUM | Sight.MODEL | Sight.GRAPH
        seen |= Sight.MASKED if self.masks else Sight.EACH_UPDATE | Sight.GROUP_SUMS | Sight.ROOT_DATA
        tapped = Sight.NOTHING if self.masks else Sight.HONEST_UPDATES
        return Exposure(seen, tapped | Sight.OWN_DATA | Sight.MODEL | Sight.RULE | Sight.GRAPH)

    @property
    def shows_others(self) -> str:
        if not self.masks:
            return ""
        return "A node reads the sum of those that it hears, by its weights; two that collude may read single ones."

    @abstractmethod
    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        """The nodes' models after each round, float32 ``[n, d]``, without end."""

    def topology(self, clients: int) -> Topology:
        """The graph of ``clients`` nodes."""
        if (self.graph == "file") != (self.file is not None):
            raise ConfigError("graph: file is where links are read from. Set both graph: file and file, or neither.")
        return topology(self.graph, clients, weight=self.weight, p=self.p, seed=self.graph_seed, file=self.file)

    @property
    def digest(self) -> str | None:
        return None if self.file is None else digest(self.file)

    def spec(self) -> dict[str, Any]:
        """As for any algorithm; parameters of other graphs are left out."""
        random = self.graph == "erdos_renyi"
        asked = {key: value for key, value in super().spec().items() if random or key not in ("p", "graph_seed")}
        return {key: value for key, value in asked.items() if value is not None}

    def updates(self, clients: Participation) -> int:
        try:
            return self.topology(clients.total).sizes[0]
        except ConfigError:
            return clients.total

    @property
    def more_rows(self) -> str:
        return "Here n counts a node and those that it hears: take a denser graph."

    def rows(self, updates: int) -> int:
        return 1 if self.masks else updates

    def reasons(self, cell: Cell) -> Iterator[str]:
        name, clients, training = self.name, cell.clients, cell.training
        try:
            graph = self.topology(clients.total)
        except ConfigError as error:
            yield str(error)
            return
        yield from self._of_graph(graph, cell)
        yield from self._of_masks(graph, cell.pipeline)
        yield from self._of_places(clients.count(clients.malicious) if cell.adversary else 0, clients.total)
        for size in graph.sizes[1:] if not self.masks else ():
            try:
                cell.pipeline.check(size, scale_assumed_f(size, cell.assumed_f, clients.total))
            except PreconditionError as error:
                yield f"at a node that hears {size - 1}: {error} {self.more_rows}"
                break
        yield from self._of_protocol(cell)
        if clients.expected < clients.total or clients.schedule:
            yield f"under {name} all nodes take part in each round. Set clients.per_round: 1.0, and leave out schedule."
        if not cell.algorithm.only_updates:
            yield (
                f"{cell.algorithm.name} settles something at the server, and {name} has none. Use fedavg, fedsgd or "
                "fedprox."
            )
        elif cell.server_step != 1 or training.server_momentum or training.server_optimizer is not None:
            yield (
                f"{name} has no server that could take a step. Leave out training.server_lr, server_momentum and "
                "server_optimizer (worker_momentum is each node's own); instead of fedsgd use fedavg with local_steps: 1."
            )
        if cell.inference is not None:
            yield from self._of_listeners(cell, cell.inference)
        if Sight.ROOT_DATA in cell.rule_sees and cell.private:
            yield (
                "a rule that tries models on a node's own examples would look at them again where noise hides them. Leave out "
                "privacy, or use a rule that does not."
            )
        by_link = isinstance(cell.adversary, PoisonAttack) and all(Sight.GRAPH in way for way in cell.adversary.needs)
        if self.broadcast and cell.adversary is not None and by_link:
            yield (
                f"{cell.adversary.name} tells each neighbor something else, and where broadcast is set all hear the same. "
                "Leave out broadcast."
            )

    def _of_places(self, attackers: int, nodes: int) -> Iterator[str]:
        """Why the malicious nodes cannot have the requested positions."""
        if self.at is None or not attackers:
            return
        if len(set(self.at)) != attackers:
            yield (
                f"{self.name}: at: expected a place for each of the {attackers} malicious nodes; got {len(set(self.at))} "
                "different ones. Set as many as clients.malicious, or leave out at."
            )
        elif max(self.at) >= nodes:
            yield (
                f"{self.name}: at: expected numbers from 0 to {nodes - 1}, of {nodes} nodes; got {max(self.at)}. Count from "
                "0, or raise clients.total."
            )
        if self.places != "drawn":
            yield f"{self.name}: at says where malicious nodes stand, and so does places. Leave out one of the two."

    def _of_protocol(self, cell: Cell) -> Iterator[str]:
        """Why it cannot be combined with masks, noise, or a lossy network."""
        name = self.name
        if cell.masking.masked:
            yield f"under {name} each node hears its neighbors one by one, and nobody sums. Set secure_aggregation: none."
        if cell.private and (cell.noise.unit != "record" or self.trainings() > 1):
            yield (
                f"under {name} there is nobody to add noise for others, and what a node sends is seen. Use privacy: "
                "{name: record} with d_psgd, d2, dsgt, sgp or lone, where each node adds noise to its one training of a round."
            )
        if cell.protocol.dropout.rate or cell.availability.may_leave:
            yield (
                f"under {name} a node waits for its neighbors, and one that leaves would be waited for for ever. Leave "
                "out protocol.dropout and network.availability."
            )
        network = cell.network
        if network is not None and network.link.loss and not self.stands_loss:
            yield (
                f"{name} sends what no later message makes up for, and a message that is lost would leave it wrong for good. "
                "Leave out network.link.loss, or use d_psgd, defacto, sgp, or dlion with its transfer."
            )
        if network is not None and network.link.loss and (self.masks or cell.inference is not None):
            yield (
                f"under {name} masks do not cancel, and nobody works out what listeners solve for, where messages are lost. "
                "Leave out network.link.loss, or masks and attacks on privacy."
            )

    def _of_masks(self, graph: Topology, pipeline: Pipeline) -> Iterator[str]:
        """Why masks within neighborhoods are impossible, or would not hide single values."""
        name = self.name
        if self.clip is not None and not self.masks:
            yield f"clip of {name} is what the masks' encoding cuts, and there are none. Set masks, or leave out clip."
        if not self.masks:
            return
        if not _by_sum(pipeline):
            yield f"masks leave a node one sum of its neighbors; {pipeline} needs single values. Use mean, or leave out masks."
        if not self.whole:
            yield f"under {name} nodes send parts of vectors, of which neighbors choose different ones. Leave out masks."
        elif min(graph.sizes) < 3:
            yield (
                f"over {self.graph} some node hears fewer than two others, and of one the sum is its value. Take a denser "
                "graph, or leave out masks."
            )
        elif self.broadcast:
            yield "under masks a node sends each neighbor something else, and where broadcast is set all hear the same."
        elif (leak := self._leaks(graph)) is not None:
            yield (
                f"masks would not hide it: from the sums of {LISTENED} rounds node {leak[0]} of {self.graph} can solve for the "
                f"update of node {leak[1]}. Use d_psgd or d2, which exchange once in a round, or a larger graph."
            )
        try:
            self.encoding().check(max(graph.sizes))
        except ConfigError as error:
            yield f"{name}: {error}"

    def _leaks(self, graph: Topology) -> tuple[int, int] | None:
        """A node that can solve for the update of another in the first rounds despite masks, and this other node; None if none.

        With one exchange in a round no node can in any round: of the newest updates it has one multiple of a sum of several.
        """
        symbols = self.on_symbols(graph, LISTENED)
        if len(symbols.values) == LISTENED:
            return None
        for node in range(graph.nodes):
            listeners = GossipListeners((node,), symbols, summed=True)
            for round in range(1, LISTENED + 1):
                for other in listeners.reads(round):
                    return node, other
        return None

    def encoding(self) -> Encoding:
        """Encoding of values as ring elements, under masks."""
        return Encoding(bits=self.masks or 20, clip=self.clip or 4.0)

    def on_symbols(self, graph: Topology, rounds: int, linear: bool = True) -> Symbols:
        """The algorithm for ``rounds`` rounds, executed on symbols.

        Args:
            linear: whether the rule is a sum by the graph's weights.
        """
        symbols = Symbols(graph, rounds, 0 if linear else 2 * self.trainings())
        models = self.models(symbols)  # type: ignore[arg-type]  # it has all that an algorithm asks of nodes
        for round in range(1, rounds + 1):
            symbols.begin(round)
            next(models)
        return symbols

    def _of_listeners(self, cell: Cell, attack: InferenceAttack) -> Iterator[str]:
        """Why no node can observe, or not from its position."""
        name = self.name
        if cell.lookers == 0:
            yield (
                f"{attack.name} is mounted by a server, and {name} has none. Use server, or set observer.seat to nodes of the "
                "graph."
            )
            return
        if not self.whole:
            yield f"what nodes solve for is worked out for whole vectors, and {name} sends parts, or nothing. Use d_psgd."
        if not _by_sum(cell.pipeline) and attack.watches == "round" and cell.watched_round > 1:
            yield (
                f"what {cell.pipeline} makes of values is no sum by the graph's weights, and what nodes solve for after it is "
                "not worked out. Set observer.round: 1, or use mean."
            )
        if self.trainings() > 1 and cell.plan.steps != 1:
            yield (
                f"a round of {name} is the mean of {self.trainings()} trainings, which is a gradient for one step each. Set "
                "training.local_steps: 1, or phase: 1."
            )

    def eavesdropper_sight(self, nodes: int, clients: int) -> Sight:
        """What observing nodes may see: under masks a single update if two collude and the algebra allows it."""
        each = Sight.EACH_UPDATE if not self.masks or nodes > 1 else Sight.NOTHING
        return each | Sight.SUM | Sight.MODEL | Sight.ROOT_DATA

    def listeners(self, setup: Setup, place: Seating, nodes: int, rounds: int) -> Listeners:
        """``nodes`` observing nodes of the graph; their positions are drawn for the trial."""
        graph = self.seats(setup)
        seat = lookouts(graph.adjacency, place, nodes, setup.rng.child("lookouts"))
        symbols = self.on_symbols(graph, rounds, _by_sum(setup.cell.pipeline))
        return GossipListeners(seat, symbols, bool(self.masks))

    def _of_graph(self, graph: Topology, cell: Cell) -> Iterator[str]:
        """Why the algorithm does not work on such a graph."""
        if self.both_ways and not (graph.rows_add_up and graph.columns_add_up):
            yield f"{self.name} needs weights whose rows and columns add up to 1, and those of {self.graph} do not. Use sgp."

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        sums = MaskedSums(setup, self.encoding()) if self.masks else None
        nodes = Nodes(setup, self.seats(setup), self.broadcast, sums)
        models = self.models(nodes)
        for round in range(1, setup.cell.training.rounds + 1):
            nodes.begin(round)
            yield nodes.report(round, next(models))

    def seats(self, setup: Setup) -> Topology:
        malicious = setup.malicious if setup.cell.attack else frozenset()
        graph, rng = self.topology(setup.cell.clients.total), setup.rng.child("places")
        return assign_positions(graph, malicious, self.places, rng, self.at if malicious else None)


def _by_sum(pipeline: Pipeline) -> bool:
    """Whether a node's aggregate is the sum of the received values by the graph's weights."""
    return not pipeline.mixings and pipeline.rule.by_graph
