"""Graphs of nodes without a server: which node receives from which, and with what weight."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.simulated.graph_file import read

if TYPE_CHECKING:
    import networkx

#: Graphs by name; see `graphs`.
GraphName = Literal[
    "ring",
    "directed_ring",
    "torus",
    "exponential",
    "one_peer_exponential",
    "erdos_renyi",
    "star",
    "complete",
    "none",
    "file",
]

#: Positions of malicious nodes; see `assign_positions`.
Places = Literal["drawn", "in_order", "clustered", "highest_degree", "cut"]

#: Draws of a random graph until one is connected.
_DRAWS = 1000
#: What rounding may leave of a sum of weights.
_ROUNDING = 1e-9

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Topology:
    """A graph with its mixing matrices.

    Attributes:
        matrices: float64 ``[n, n]`` each, used in turn, again and again. Row i has the weights that node i gives to the values
            of all nodes, its own included.
    """

    matrices: tuple[Matrix, ...]

    def at(self, step: int) -> Matrix:
        """The matrix of an exchange (from 0)."""
        return self.matrices[step % len(self.matrices)]

    @property
    def nodes(self) -> int:
        return len(self.matrices[0])

    @cached_property
    def rows_add_up(self) -> bool:
        """Whether each row sums to 1: nodes with equal values keep them."""
        return all(bool(np.allclose(one.sum(1), 1, atol=_ROUNDING)) for one in self.matrices)

    @cached_property
    def columns_add_up(self) -> bool:
        """Whether each column sums to 1: the sum over all nodes does not change."""
        return all(bool(np.allclose(one.sum(0), 1, atol=_ROUNDING)) for one in self.matrices)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of values that nodes weigh in an exchange, their own included, in ascending order without repetition."""
        return tuple(sorted({int(number) for one in self.matrices for number in _neighbor_mask(one).sum(1)}))

    @cached_property
    def _eigenvalues(self) -> NDArray[np.complex128]:
        """Eigenvalues of the product over one period without the consensus eigenvalue, by decreasing modulus."""
        # The first exchange acts first, so it is the rightmost factor
        turn = np.linalg.multi_dot(self.matrices[::-1]) if len(self.matrices) > 1 else self.matrices[0]
        # eigvals, not eigvalsh: with directed links W is not symmetric, and eigenvalues may be complex
        values = np.linalg.eigvals(turn).astype(np.complex128)
        # One eigenvalue only: a graph in parts has 1 several times, and must come out with a gap of 0
        agreement = int(np.argmin(np.abs(values - 1)))
        rest = np.delete(values, agreement)
        return rest[np.argsort(-np.abs(rest))]

    @property
    def second(self) -> float:
        """$|lambda_2|$: the asymptotic factor by which the slowest disagreement shrinks in one exchange."""
        if self.nodes == 1:
            return 0.0
        # The product covers one period: the root gives the geometric mean for one exchange
        return float(np.abs(self._eigenvalues[0]) ** (1 / len(self.matrices)))

    @property
    def gap(self) -> float:
        """$1 - |lambda_2|$."""
        return 1 - self.second

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue, by its real part, of the first matrix."""
        return float(np.linalg.eigvals(self.matrices[0]).real.min())

    @property
    def bias(self) -> float:
        """The smallest $|1 - lambda|$ of one period: a constant difference of nodes is amplified by up to its reciprocal.

        It is not a function of the gap: a directed ring mixes more slowly than an undirected ring, and has less bias.
        """
        return float(np.abs(1 - self._eigenvalues).min()) if self.nodes > 1 else 1.0

    @cached_property
    def adjacency(self) -> NDArray[np.bool_]:
        """bool ``[n, n]``: whether node i (row) ever receives from node j."""
        adjacency: NDArray[np.bool_] = np.logical_or.reduce([_neighbor_mask(one) for one in self.matrices])
        return adjacency & ~np.eye(self.nodes, dtype=bool)

    @cached_property
    def cut(self) -> int:
        """Node connectivity: the fewest nodes that separate others if removed; n - 1 for a complete graph."""
        import networkx

        return int(networkx.node_connectivity(self.graph))

    @cached_property
    def graph(self) -> networkx.DiGraph[int]:
        """Directed graph with an edge from each node to each node that receives from it."""
        import networkx

        return networkx.from_numpy_array(self.adjacency.T, create_using=networkx.DiGraph)

    def among(self, nodes: Sequence[int]) -> Topology:
        """The subgraph of these nodes; rows need not sum to 1."""
        return Topology(tuple(one[np.ix_(list(nodes), list(nodes))] for one in self.matrices))

    @cached_property
    def slowest(self) -> Matrix:
        """float64 ``[n]``, of length 1: the pattern of disagreement that decays last, ignoring the direction of links.

        It is the eigenvector of the second smallest eigenvalue of the Laplacian of the weights (Fiedler); 0 for a single node.
        """
        weights = np.mean(self.matrices, axis=0)
        weights = (weights + weights.T) / 2
        np.fill_diagonal(weights, 0)
        if self.nodes == 1:
            return np.zeros(1)
        found: Matrix = np.linalg.eigh(np.diag(weights.sum(1)) - weights)[1][:, 1]
        return found

    def reorder_nodes(self, places: Sequence[int]) -> Topology:
        """The same graph with node i at position ``places[i]``."""
        order = np.asarray(places)
        return Topology(tuple(one[np.ix_(order, order)] for one in self.matrices))


def _neighbor_mask(matrix: Matrix) -> NDArray[np.bool_]:
    adjacency: NDArray[np.bool_] = (matrix != 0) | np.eye(len(matrix), dtype=bool)
    return adjacency


def topology(
    name: GraphName, nodes: int, *, weight: float = 1.0, p: float = 0.3, seed: int = 0, file: str | None = None
) -> Topology:
    """A graph with Metropolis-Hastings weights, or equal weights if links are directed.

    For undirected links $W_ij = 1/(1 + max(deg_i, deg_j))$, and a node's own value has what is missing to 1. For directed links
    all values that a node has in one exchange, its own included, weigh the same. With ``weight`` k the mixing matrix is
    $W_k = k W + (1 - k) I$.

    Raises:
        ConfigError: there is no such graph of ``nodes`` nodes, or the file has none.
    """
    eye = np.eye(nodes)
    found = _matrices(name, nodes, p, seed) if file is None else (_of_file(file, nodes),)
    return Topology(tuple(weight * one + (1 - weight) * eye for one in found))


def _of_file(file: str, nodes: int) -> Matrix:
    """The weights of a file; Metropolis-Hastings weights for undirected links without weights, equal for directed links."""
    matrix, weighted = read(file, nodes)
    if weighted:
        return matrix
    links = matrix > 0
    if (links == links.T).all():
        return metropolis(links)
    heard = _neighbor_mask(matrix).astype(np.float64)
    equal: Matrix = heard / heard.sum(1, keepdims=True)
    return equal


@lru_cache(maxsize=64)
def _matrices(name: GraphName, nodes: int, p: float, seed: int) -> tuple[Matrix, ...]:
    if name == "none":
        return (np.eye(nodes),)
    if nodes < 2:
        raise ConfigError(f"graph: {name} has links, and there is one client. Raise clients.total.")
    hops = [2**power for power in range(max(1, math.ceil(math.log2(nodes))))]
    if name == "directed_ring":
        return (_circulant(nodes, [1]),)
    if name == "exponential":
        return (_circulant(nodes, hops),)
    if name == "one_peer_exponential":
        return tuple(_circulant(nodes, [hop]) for hop in hops)
    return (metropolis(_links(name, nodes, p, seed)),)


def _circulant(nodes: int, hops: Sequence[int]) -> Matrix:
    """Each node receives from the nodes ``hops`` positions before it; all values, its own included, weigh the same."""
    row = np.zeros(nodes)
    row[[0, *(-hop % nodes for hop in hops)]] = 1
    row /= row.sum()
    return np.stack([np.roll(row, node) for node in range(nodes)])


def _links(name: GraphName, nodes: int, p: float, seed: int) -> NDArray[np.bool_]:
    """bool ``[n, n]``, symmetric: a graph with links in both directions."""
    import networkx

    if name == "ring":
        graph = networkx.cycle_graph(nodes) if nodes > 2 else networkx.path_graph(nodes)
    elif name == "torus":
        side = next(side for side in range(math.isqrt(nodes), 0, -1) if nodes % side == 0)
        if side == 1:
            raise ConfigError(
                f"graph: a torus has rows and columns of two nodes or more, and {nodes} make none. Set another clients.total."
            )
        graph = networkx.grid_2d_graph(side, nodes // side, periodic=True)
    elif name == "star":
        graph = networkx.star_graph(nodes - 1)
    elif name == "complete":
        graph = networkx.complete_graph(nodes)
    else:
        # Redrawn until connected: this is G(n, p) given that it is connected. Each draw has a stream of its own, so that its
        # number alone says which graph it is
        draws = (Rng(seed).child("graph", name, nodes, number).numpy() for number in range(_DRAWS))
        graphs = (networkx.gnp_random_graph(nodes, p, seed=draw) for draw in draws)
        connected = next((one for one in graphs if networkx.is_connected(one)), None)
        if connected is None:
            raise ConfigError(
                f"graph: none of {_DRAWS} graphs of {nodes} clients with p = {p:g} holds together. Raise p above log(n)/n."
            )
        graph = connected
    links: NDArray[np.bool_] = networkx.to_numpy_array(graph) > 0
    np.fill_diagonal(links, False)
    return links


def metropolis(links: NDArray[np.bool_]) -> Matrix:
    """$W_ij = 1/(1 + max(deg_i, deg_j))$ for a link, and on the diagonal what is missing to 1 (Xiao and Boyd, 2004)."""
    # Symmetric, so doubly stochastic: the mean over nodes is kept; and a node needs only the degrees of its neighbors
    degrees = links.sum(1)
    matrix = np.where(links, 1 / (1 + np.maximum(degrees[:, None], degrees[None, :])), 0.0)
    np.fill_diagonal(matrix, 1 - matrix.sum(1))
    return matrix


def assign_positions(
    topology: Topology, malicious: Collection[int], places: Places, rng: Rng, seats: Sequence[int] | None = None
) -> Topology:
    """The graph with its nodes numbered as the clients.

    Args:
        places: positions of the clients: ``in_order`` of their numbers or ``drawn``; for malicious clients also ``clustered``
            around a drawn position, at the positions of ``highest_degree``, or at a ``cut``: the fewest positions that
            separate others if removed, then the positions on most shortest paths. Honest clients get drawn positions.
        seats: positions of the malicious clients instead, in the order of their numbers.
    """
    # Drawn before any return, from a stream of its own: honest clients have the same order wherever the malicious ones are
    order = [int(place) for place in rng.numpy().permutation(topology.nodes)]
    if seats is None and places == "in_order":
        return topology
    without_links = not topology.adjacency.any()  # all positions are alike
    if not malicious or without_links or (seats is None and places == "drawn"):
        return topology.reorder_nodes(order)
    taken = list(seats) if seats is not None else _rank_positions(topology, places, order)[: len(malicious)]
    left = iter([place for place in order if place not in taken])
    hostile = iter(taken)
    return topology.reorder_nodes(
        [next(hostile) if client in malicious else next(left) for client in range(topology.nodes)]
    )


def lookouts(adjacency: NDArray[np.bool_], place: str, count: int, rng: Rng) -> tuple[int, ...]:
    """``count`` observing nodes.

    Args:
        adjacency: bool ``[n, n]``: whether node i (row) receives from node j.
        place: ``nodes`` at drawn positions; ``side_by_side``: a drawn node and the nearest to it; ``around`` a drawn node: the
            nodes that receive from it, then the nearest others. Ties are drawn.
    """
    import networkx

    order = [int(node) for node in rng.numpy().permutation(len(adjacency))]
    if place == "nodes":
        return tuple(sorted(order[:count]))
    graph = networkx.from_numpy_array((adjacency | adjacency.T).astype(int))
    away, rank = networkx.single_source_shortest_path_length(graph, order[0]), {one: at for at, one in enumerate(order)}
    # Distances ignore directions, so a neighbor may receive nothing from the drawn node: those that do come first
    nearest = sorted(
        order, key=lambda node: (away.get(node, len(adjacency)), not adjacency[node, order[0]], rank[node])
    )
    return tuple(sorted(nearest[:count] if place == "side_by_side" else nearest[1 : count + 1]))


def _rank_positions(topology: Topology, places: Places, order: Sequence[int]) -> list[int]:
    """All positions in the order in which malicious clients take them; ``order`` breaks ties."""
    import networkx

    graph = topology.graph.to_undirected()
    rank = {place: number for number, place in enumerate(order)}
    if places == "clustered":
        away = networkx.single_source_shortest_path_length(graph, order[0])
        return sorted(order, key=lambda place: (away[place], rank[place]))
    if places == "highest_degree":
        return sorted(order, key=lambda place: (-graph.degree(place), rank[place]))
    # A complete graph has no cut, and all its positions are alike
    if topology.cut == topology.nodes - 1:
        return list(order)
    cut, passed = networkx.minimum_node_cut(graph), networkx.betweenness_centrality(graph)
    # Rounded: positions that are alike differ in the last digits, which would decide instead of the drawn order
    return sorted(order, key=lambda place: (place not in cut, -round(passed[place], 9), rank[place]))


NAMES: tuple[str, ...] = get_args(GraphName)
