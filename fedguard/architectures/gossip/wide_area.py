"""Wide-area decentralized training: far links are used less often, and for less (as overviews of the field have it)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.parcels import largest
from fedguard.architectures.gossip.place import Matrix
from fedguard.contracts import Cell, PositiveInt, Share
from fedguard.errors import ConfigError
from fedguard.simulated.topology import GraphName, Topology


@dataclass(frozen=True, kw_only=True)
class WideArea(Gossip):
    """Nodes are at sites: within a site they exchange each update whole, and between sites a part of it now and then.

    $x_i <- x_i + (1/n) sum_j s_j u_j$ over the node's own site in each round. Updates not yet sent to other sites accumulate,
    $a_j <- a_j + u_j$. After each k-th round a node sends them the largest coordinates $c_j$ of $a_j$; then
    $a_j <- a_j - c_j$ and $x_i <- x_i + (1/n) sum_j s_j c_j$ over the other sites. If nodes have different numbers of examples
    $d_j$, $s_j = n d_j / sum d$ makes this the gradient over all examples; $d_j$ is self-reported. With k = 1 and whole
    vectors it is the synchronous server with weights by examples. A single coordinate takes four bytes, and four for its index.

    Received values are sparse and of different ages, so a rule has nothing to compare, and only the mean can run.

    Args:
        sites: number of sites, each with consecutive nodes, in numbers that differ by one at most.
        every: k.
        top: share of the coordinates that is sent between sites.
        by_examples: whether $s_j$ is used; otherwise it is 1.
    """

    name = "wide_area"
    source = "as overviews of the field have it; what is not sent adds up as in Ako, SoCC 2016"

    graph: GraphName = "complete"
    sites: PositiveInt = 2
    every: PositiveInt = 4
    top: Share = 0.1
    by_examples: bool = True

    def topology(self, clients: int) -> Topology:
        """Two mixing matrices: within sites, and among all nodes."""
        if clients < self.sites:
            raise ConfigError(f"sites: expected a client or more at each; got {self.sites} sites, {clients} clients.")
        site = np.arange(clients) * self.sites // clients
        near = (site[:, None] == site[None, :]).astype(np.float64)
        return Topology((near / near.sum(1, keepdims=True), np.full((clients, clients), 1 / clients)))

    def _of_graph(self, graph: Topology, cell: Cell) -> Iterator[str]:
        name, rule = self.name, cell.pipeline.rule.name
        if self.graph != "complete" or self.file is not None or self.weight != 1:
            yield f"under {name} all nodes hear all, near ones more often. Leave out graph and weight, and set sites."
        if cell.pipeline.mixings or rule != "mean":
            yield (
                f"what nodes of {name} hear is of unlike ages, and sparse, and {rule} would find nothing to compare. Use mean; "
                "or ako or d_psgd, where rules run."
            )
        if self.by_examples and cell.protocol.private:
            yield f"{name} tells how many examples each node has, which the noise does not hide. Set by_examples: false."

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        x, dim = nodes.start, nodes.start.shape[1]
        near, far, of_near = _weights(nodes, self.by_examples)
        whole, part = largest(dim, 1.0, kind=0), largest(dim, self.top, kind=1)
        unsent, round = torch.zeros_like(x), 0
        while True:
            updates, round, start = nodes.updates(x), round + 1, x
            x = x + of_near * nodes.of_parcels(updates, whole, models=start, matrix=near)
            unsent = unsent + updates
            if round % self.every == 0:
                sent = part.packed(unsent) / self.every  # as long as an update, as lies are
                x = x + self.every * (nodes.of_parcels(sent, part, models=start, matrix=far) - of_near * sent)
                unsent = unsent - self.every * sent
            yield x


def _weights(nodes: Nodes, by_examples: bool) -> tuple[Matrix, Matrix, Tensor]:
    """Weights of the nodes of its own site in a node's mean of the site, and of the other sites in its mean of all.

    Returns:
        near, far: float64 ``[n, n]``; in far a node's own value replaces its site, so that rows sum to 1.
        of_near: float ``[n, 1]``: weight of a node's own site among all.
    """
    n, like = nodes.topology.nodes, nodes.start
    counts = nodes.said.samples if by_examples else np.ones(n)
    at_site = nodes.topology.at(0) != 0
    near, far = (np.where(chosen, counts / counts.sum(), 0.0) for chosen in (at_site, ~at_site))
    of_near = near.sum(1, keepdims=True)
    far[np.diag_indices(n)] = of_near[:, 0]
    return near / of_near, far, torch.from_numpy(of_near).to(like.dtype)
