"""DLion: work by capability, messages by bandwidth, and the best model for all (Hong and Chandra, HPDC 2021)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.gossip.parcels import NUMBER, VALUE, Links, Parcel, largest
from fedguard.architectures.gossip.place import Matrix
from fedguard.contracts import Cell, NonNegativeFloat, NonNegativeInt, Share
from fedguard.contracts.channels import LOSS, RATE
from fedguard.contracts.lying import Channels
from fedguard.simulated.topology import GraphName, Topology

#: Exponent of the total by which step sizes grow.
_RATES = {"constant": 0.0, "linear": 1.0, "sqrt": 0.5}

#: Rules that use claimed numbers of examples, or weights derived from them.
_RULES = ("mean", "capped_mean")


@dataclass(frozen=True, kw_only=True)
class DLion(Gossip):
    """Each node trains on as much as it is capable of, sends what its links have room for, and takes over the best model.

    - *Work by capability.* Of G examples in a step, at first n times the batch size, node j takes $b_j = G c_j / sum_k c_k$,
      where $c_j$ is its claimed number of examples a second; so all finish at the same time. Its update is weighted by its
      claimed batch: $x_i <- x_i + sum_j (b_j / sum_k b_k) P_ij(u_j)$; unless ``weighted``, all updates weigh the same.
    - *Growing total.* After t rounds $G_t = min(G_0 (1 + a)^t, m D)$, and never below $G_0$; D is the claimed number of all
      examples. Step sizes follow it: $eta_t = eta (G_t / G_0)^r$ with r = 0 (``constant``), 1 (``linear``) or 1/2 (``sqrt``).
    - *Messages by bandwidth.* $P_ij$ keeps the N % of the coordinates with the largest absolute values, as many as go from j
      to i while a step is computed, 1 % or more; $P_ii$ keeps all. The rest is lost for the others; with ``feedback`` it is
      added to the next message: $c_ij = P_ij(e_ij + u_j)$ is sent, and $e_ij <- e_ij + u_j - c_ij$ is kept for that link.
    - *Direct knowledge transfer.* After each k-th round nodes report the losses of their models on their own examples, and the
      node with the lowest sends its model $x_b$ to all: $x_i <- x_i - lambda (x_i - x_b)$. This brings the models together.

    A node's own update or model replaces a lost message; self-reports are never lost.

    With equal nodes, N = 100 % and no transfer it is the synchronous server, and D-PSGD over a complete graph. Self-reports
    are believed, unless the rule caps them (`capped_mean`: no f nodes weigh more than its share) or the best model is tried
    (``checked``: a node keeps its own model unless the merged one does better on its own examples). Other rules would find
    nothing to compare: rows are sparse in different coordinates. The source's nodes do not wait for each other, and send what
    is within N % of the largest coordinate; here they wait, and send N % of the coordinates.

    Args:
        by_capability: whether batches follow capability; otherwise all are equal.
        weighted: whether updates are weighted by their batches; otherwise all weigh the same.
        feedback: whether unsent coordinates are sent later.
        growth: a, the growth of the total in a round.
        most: m, the largest share of all examples in a step.
        rate: rule by which step sizes follow the total.
        top: N as a share for all links; None for the room of each link.
        transfer: k; 0 for never.
        step: lambda.
        checked: whether nodes test the merged model on their own examples.
    """

    name = "dlion"
    source = "Hong and Chandra, DLion: Decentralized Distributed Deep Learning in Micro-Clouds, HPDC 2021"

    graph: GraphName = "complete"
    by_capability: bool = True
    growth: NonNegativeFloat = 0.0
    most: Share = 0.1
    rate: Literal["constant", "linear", "sqrt"] = "constant"
    top: Share | None = None
    transfer: NonNegativeInt = 10
    step: Share = 0.75
    checked: bool = False
    weighted: bool = True
    feedback: bool = False

    later: ClassVar = {"weighted": True, "feedback": False}

    @property
    def stands_loss(self) -> bool:  # type: ignore[override]
        """The next transfer makes up for what was lost."""
        return self.transfer > 0

    @property
    def channels(self) -> Channels:  # type: ignore[override]
        """Claimed rates if work follows from them, and claimed losses if the best model is transferred."""
        asked = {RATE: self.by_capability, LOSS: self.transfer > 0}
        return Gossip.channels | {channel for channel, used in asked.items() if used}

    def spec(self) -> dict[str, Any]:
        """As for any algorithm; the parameters of a growing total are left out without growth."""
        still = () if self.growth else ("growth", "most", "rate")
        return {key: value for key, value in super().spec().items() if value is not None and key not in still}

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        name, training = self.name, cell.training
        if training.batch_size is None or cell.plan.steps is None:
            yield f"{name} deals out the examples of a step. Set training.local_steps and training.batch_size."
        if self.rate != "constant" and not self.growth:
            yield f"rate of {name} follows a total that grows, and it does not. Set growth, or leave out rate."
        if cell.private:
            yield f"nodes of {name} tell how quick they are and how well they do, which no noise hides. Use d_psgd."
        if self.broadcast:
            yield f"under {name} each link carries as much as it has room for. Leave out broadcast."

    def _of_graph(self, graph: Topology, cell: Cell) -> Iterator[str]:
        rule = cell.pipeline.rule.name
        if self.graph != "complete" or self.weight != 1:
            yield f"under {self.name} all nodes hear all. Leave out graph and weight, or use d_psgd."
        if cell.pipeline.mixings or rule not in _RULES:
            yield (
                f"what nodes of {self.name} hear is sparse, each in other places, and {cell.pipeline} would find nothing to "
                "compare. Use mean or capped_mean; or ako or d_psgd, where rules run."
            )

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        x, round, first = nodes.start, 0, float(len(nodes.start) * nodes.batch_size)
        total, owed = first, _LinkResiduals(nodes) if self.feedback else None
        while True:
            batches = self._batches(nodes, total)
            counts = nodes.said.examples(batches) if self.weighted else np.ones(len(x))
            start, round = x, round + 1
            u = nodes.updates(x, batches, (total / first) ** _RATES[self.rate])
            weights = np.tile(counts / counts.sum(), (len(x), 1))
            links = self._links(nodes, batches)
            if owed is not None:
                links = owed.fill_links(u, links)
            x = x + nodes.by_links(u, links, models=x, matrix=nodes.drop_messages(weights))
            if self.transfer and round % self.transfer == 0:
                x = self._transfer_best_model(nodes, x, start)
            yield x
            if self.growth:
                total = min(total * (1 + self.growth), max(first, self.most * float(nodes.said.samples.sum())))

    def _batches(self, nodes: Nodes, total: float) -> list[int]:
        """The batch b of each node, rounded, at least 1."""
        rates = nodes.said.rates if self.by_capability else np.ones(len(nodes.start))
        return [max(1, round(float(part))) for part in total * rates / rates.sum()]

    def _links(self, nodes: Nodes, batches: Sequence[int]) -> Links:
        """The parcel of each link that fits into the time in which the slowest node computes its step."""
        dim = nodes.start.shape[1]
        if self.top is not None:
            same = largest(dim, self.top)
            return lambda source, node: same
        room, made = nodes.traffic.room(nodes.traffic.seconds(batches)), dict[int, Parcel]()

        def parcel(source: int, node: int) -> Parcel:
            count = _coordinates(float(room[node, source]), dim)
            return made.setdefault(count, largest(dim, count / dim))

        return parcel

    def _transfer_best_model(self, nodes: Nodes, x: Tensor, start: Tensor) -> Tensor:
        """The models after the best one was merged into them; lies are crafted from the models at the start of the round."""
        losses = nodes.said.losses(x)
        if not np.isfinite(losses).any():
            return x
        merged = nodes.mix_by_claims(x, start, nodes.drop_messages(_towards(int(losses.argmin()), len(x), self.step)))
        if not self.checked:
            return merged
        better = torch.from_numpy(nodes.said.own_losses(merged) < nodes.said.own_losses(x))
        return torch.where(better[:, None], merged, x)


class _LinkResiduals:
    """Unsent residual e of each link from an honest node. Malicious nodes keep none."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes, self._owed = nodes, dict[tuple[int, int], Tensor]()

    def fill_links(self, updates: Tensor, links: Links) -> Links:
        """The same links, carrying what fits of each update (float32 ``[n, d]``) plus the residual of the link."""
        made: dict[tuple[int, int], Parcel] = {}
        for source in set(range(len(updates))) - self._nodes.acting:
            for node in set(range(len(updates))) - {source}:
                link, parcel = (source, node), links(source, node)
                assert parcel is not None
                whole = self._owed.get(link, 0) + updates[source][None]
                carried = parcel.packed(whole)
                self._owed[link] = whole - carried
                made[link] = Parcel(parcel.kind, parcel.size, carried.expand_as)
        return lambda source, node: made[source, node] if (source, node) in made else links(source, node)


def _coordinates(room: float, dim: int) -> int:
    """Number of coordinates that fit into ``room`` bytes, with their indices unless all fit; 1 % or more."""
    if room >= VALUE * dim:
        return dim
    return max(-(-dim // 100), min(int(room / (VALUE + NUMBER)), dim))


def _towards(best: int, nodes: int, step: float) -> Matrix:
    """float64 ``[n, n]``: each node gives ``step`` to the best node, and the rest to itself."""
    matrix: Matrix = (1 - step) * np.eye(nodes)
    matrix[:, best] += step
    return matrix
