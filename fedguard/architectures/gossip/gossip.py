"""What all ways of training without a server have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedguard.architectures.gossip.nodes import Nodes
from fedguard.contracts import (
    Architecture,
    Combination,
    Exposure,
    NonNegativeInt,
    Participation,
    PoisonAttack,
    RoundReport,
    Setup,
    Share,
    Sight,
    told_among,
)
from fedguard.errors import ConfigError, PreconditionError
from fedguard.simulated.topology import GraphName, Places, Topology, seated, topology


@dataclass(frozen=True, kw_only=True)
class Gossip(Architecture):
    """Each node has a model of its own, hears its neighbours in a graph, and aggregates for itself.

    The rule of the cell runs at each node, on its own value and those that it hears, measured from the node's model; the mean
    weighs them by the graph's matrix W. A node's clean data are its own examples, and its root update is its own. A node
    waits for its neighbours and for nobody else. Malicious nodes tell each honest neighbour something else, made for that
    neighbour. Figures are means over honest nodes.

    Args:
        graph: who hears whom. In both directions, with the weights of Metropolis and Hastings: ``ring``, ``torus``, ``star``,
            ``complete``, ``erdos_renyi``. In one direction, with equal weights: ``directed_ring``, ``exponential`` (the nodes
            1, 2, 4, ... places before), ``one_peer_exponential`` (one of these after the other). Or ``none``.
        p: of ``erdos_renyi``: the chance of each link. The graph is drawn once, whatever the seed of the trial.
        graph_seed: another one.
        weight: k of $W_k = k W + (1 - k) I$.
        places: where malicious nodes stand: ``drawn``, ``in_order`` of the clients' numbers, ``clustered``, at the
            places of ``highest_degree``, or at a ``cut`` that parts the others.
        broadcast: whether all neighbours of a node hear the same, as by radio.
    """

    in_time = True
    exposes = Exposure(
        server=Sight.EACH_UPDATE | Sight.GROUP_SUMS | Sight.SUM | Sight.MODEL | Sight.GRAPH | Sight.ROOT_DATA,
        clients=Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE | Sight.GRAPH,
    )
    #: Whether it needs weights whose rows and columns add up to 1.
    both_ways: ClassVar[bool] = True

    graph: GraphName = "ring"
    p: Share = 0.3
    graph_seed: NonNegativeInt = 0
    weight: Share = 1.0
    places: Places = "drawn"
    broadcast: bool = False

    @abstractmethod
    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        """The nodes' models after each round, float32 ``[n, d]``, for ever."""

    @property
    def several(self) -> bool:
        """Whether a node trains more than once in a round."""
        return False

    def topology(self, clients: int) -> Topology:
        """The graph of so many nodes."""
        return topology(self.graph, clients, weight=self.weight, p=self.p, seed=self.graph_seed)

    def spec(self) -> dict[str, Any]:
        """As for any algorithm; what only other graphs ask for is left out."""
        random = self.graph == "erdos_renyi"
        return {key: value for key, value in super().spec().items() if random or key not in ("p", "graph_seed")}

    def updates(self, clients: Participation) -> int:
        try:
            return self.topology(clients.total).sizes[0]
        except ConfigError:
            return clients.total

    @property
    def more_rows(self) -> str:
        return "Here n counts a node and those that it hears: take a denser graph."

    def reasons(self, cell: Combination) -> Iterator[str]:
        name, clients, training = self.name, cell.clients, cell.training
        try:
            graph = self.topology(clients.total)
        except ConfigError as error:
            yield str(error)
            return
        yield from self._of_graph(graph, cell)
        for size in graph.sizes[1:]:
            try:
                cell.pipeline.check(size, told_among(size, cell.told, clients.total))
            except PreconditionError as error:
                yield f"at a node that hears {size - 1}: {error} {self.more_rows}"
                break
        if cell.protocol.masked:
            yield f"under {name} each node hears its neighbours one by one, and nobody sums. Switch secure_aggregation off."
        if cell.protocol.private and (cell.protocol.privacy.unit != "record" or self.several):
            yield (
                f"under {name} there is nobody to add noise for others, and what a node sends is seen. Use privacy: "
                "{kind: record} with d_psgd, d2, dsgt, sgp or lone, where each node adds noise to its one training of a round."
            )
        if cell.protocol.dropout.rate or (cell.network is not None and cell.network.loses):
            yield (
                f"under {name} a node waits for its neighbours, and a message that is lost would be waited for for ever. Leave "
                "out protocol.dropout, network.link.loss and network.there."
            )
        if clients.expected < clients.total or clients.schedule:
            yield f"under {name} all nodes take part in each round. Set clients.per_round: 1.0, and leave out schedule."
        if not training.algorithm.only_updates:
            yield (
                f"{training.algorithm.name} settles something at the server, and {name} has none. Use fedavg, fedsgd or "
                "fedprox."
            )
        elif training.server_step != 1 or training.server_momentum or training.server_optimizer is not None:
            yield (
                f"{name} has no server that could take a step. Leave out training.server_lr, server_momentum and "
                "server_optimizer (worker_momentum is each node's own); instead of fedsgd use fedavg with local_steps: 1."
            )
        if cell.inference is not None:
            yield f"{cell.inference.name} is mounted by a server, and {name} has none. Use server."
        if Sight.ROOT_DATA in cell.rule_sees and cell.protocol.private:
            yield (
                "a rule that tries models on a node's own examples would look at them again where noise hides them. Leave out "
                "privacy, or use a rule that does not."
            )
        by_link = isinstance(cell.adversary, PoisonAttack) and all(Sight.GRAPH in way for way in cell.adversary.needs)
        if self.broadcast and cell.adversary is not None and by_link:
            yield (
                f"{cell.adversary.name} tells each neighbour something else, and where broadcast is set all hear the same. "
                "Leave out broadcast."
            )

    def _of_graph(self, graph: Topology, cell: Combination) -> Iterator[str]:
        """Why the algorithm does not work on such a graph."""
        if self.both_ways and not (graph.rows_add_up and graph.columns_add_up):
            yield f"{self.name} needs weights whose rows and columns add up to 1, and those of {self.graph} do not. Use sgp."

    def seats(self, setup: Setup) -> Topology:
        """The graph, with the clients in their places."""
        malicious = setup.malicious if setup.attack else frozenset()
        return seated(self.topology(setup.participation.total), malicious, self.places, setup.rng.child("places"))

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        nodes = Nodes(setup, self.seats(setup), self.broadcast)
        models = self.models(nodes)
        for round in range(1, setup.training.rounds + 1):
            nodes.begin(round)
            yield nodes.report(round, next(models))
