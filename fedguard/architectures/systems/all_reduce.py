"""All-reduce: nodes add up their updates among themselves (Patarasu and Yuan, JPDC 2009; Horovod, 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge, Le
from numpy.typing import NDArray
from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.by_node import by_node
from fedguard.architectures.collectives import TOPOLOGIES
from fedguard.architectures.collectives.listening import CollectiveListeners, neighbours
from fedguard.architectures.collectives.schedule import Schedule, carried
from fedguard.architectures.masking.inputs import Inputs
from fedguard.architectures.masking.pairwise import KEY, Pairs
from fedguard.architectures.optimizers import ServerStep
from fedguard.architectures.systems.peers import ELEMENT, HASH, PeerRun, Peers
from fedguard.contracts import (
    Combination,
    Exposure,
    Listeners,
    MaskedRound,
    NodesReport,
    PlainReceiver,
    PoisonAttack,
    PositiveFloat,
    PositiveInt,
    Received,
    RoundReport,
    Seating,
    Sent,
    Setup,
    Sight,
    Wire,
)
from fedguard.errors import ConfigError
from fedguard.kernels import all_finite
from fedguard.secagg.encoding import Encoding
from fedguard.simulated.topology import lookouts


@dataclass(frozen=True, kw_only=True)
class AllReduce(Peers):
    """All nodes train from one model, add up their updates among themselves, and each moves its own copy of the model.

    $w <- w + server_lr * (1/n) sum_i x_i$ at every node, the sum in the order in which the topology adds it up.

    ``ring`` cuts the vector into n chunks that go around twice, see `fedguard.architectures.collectives.ring`; in
    ``hierarchical`` there are rings within groups and across them; in ``reduce_broadcast`` node 0 adds up. Nobody is given
    each update there, and only rules that need the sum may run; with weights by samples each node multiplies its update by its
    number of examples, which is summed as one more coordinate. In ``all_to_all`` each node has all updates, and runs any rule
    by itself.

    Malicious nodes that tap all links see what every node adds, but not under ``masks``.

    Args:
        topology: who sends what to whom.
        group: nodes of a group of ``hierarchical``; it divides their number.
        masks: bits of a coordinate, with its sign, where each pair of nodes adds masks that cancel in the sum, modulo $2^32$;
            None for no masks.
        clip: under masks, the largest absolute value of a coordinate that an honest node sends.
        hashes: whether nodes tell each other a hash of the sum that they came to, and none of them moves where these are not
            all the same: who handed on another one they do not learn.
    """

    name = "all_reduce"
    source = (
        "Patarasu and Yuan, Bandwidth Optimal All-reduce Algorithms, JPDC 2009; Sergeev and Del Balso, Horovod, 2018"
    )

    topology: Literal["ring", "reduce_broadcast", "hierarchical", "all_to_all"] = "ring"
    group: PositiveInt | None = None
    masks: Annotated[int, Ge(2), Le(24)] | None = None
    clip: PositiveFloat | None = None
    hashes: bool = False

    @property
    def exposes(self) -> Exposure:  # type: ignore[override]
        """What each node sees for its rule, and what the malicious ones do."""
        if self.topology == "all_to_all":
            seen = Sight.EACH_UPDATE | Sight.GROUP_SUMS
        else:
            seen = Sight.MASKED if self.masks else Sight.NOTHING
        tapped = Sight.NOTHING if self.masks else Sight.HONEST_UPDATES
        return Exposure(seen | Sight.SUM | Sight.MODEL, tapped | Sight.OWN_DATA | Sight.MODEL | Sight.RULE)

    @property
    def believes(self) -> frozenset[str]:  # type: ignore[override]
        """Sums go through other nodes, unless each sends its own to all."""
        if self.topology == "all_to_all":
            return frozenset()
        handed = self.topology in ("ring", "hierarchical") and not self.masks
        return frozenset({"adds", "hands_on"} if handed else {"adds"})

    @property
    def shows_others(self) -> str:
        if self.masks:
            return "Nodes read masked chunks of others, and the sum of all."
        return {
            "ring": "Each node reads 1/n of the updates of the two beside it, and partial sums; two around a node read all.",
            "reduce_broadcast": "Node 0 reads each update, and adds them up.",
            "hierarchical": "Each node reads a part of the update of the one before it in its group, and partial sums.",
            "all_to_all": "Each node reads each update.",
        }[self.topology]

    @property
    def more_rows(self) -> str:
        return "" if self.topology == "all_to_all" else "Each node has one sum: use mean, or topology='all_to_all'."

    def rows(self, updates: int) -> int:
        return updates if self.topology == "all_to_all" else 1

    def spec(self) -> dict[str, Any]:
        """As for any algorithm; a parameter that is None or False switches something off, and is left out."""
        return {key: value for key, value in super().spec().items() if value is not None and value is not False}

    def schedule(self, nodes: int) -> Schedule:
        """Who sends what to whom among so many nodes."""
        return _schedule(self.topology, nodes, self.group or 1)

    def reasons(self, cell: Combination) -> Iterator[str]:
        yield from super().reasons(cell)
        n, sums = cell.clients.total, self.topology != "all_to_all"
        if (self.topology == "hierarchical") != (self.group is not None):
            yield "group is the number of nodes of a group of topology: hierarchical. Set both of all_reduce, or neither."
        elif self.group is not None and n % self.group:
            yield f"{n} nodes cannot be dealt into groups of {self.group}. Set group of all_reduce to a divisor of {n}."
        if self.clip is not None and not self.masks:
            yield "clip of all_reduce is what the masks' encoding cuts, and there are none. Set masks, or leave out clip."
        looking = [stage.name for stage in cell.pipeline.stages if stage.reads_clients and not stage.by_samples]
        if looking and sums:
            yield (
                f"{' and '.join(looking)} looks up the client behind each row; here there is one sum. "
                "Use topology: all_to_all, or server."
            )
        if self.masks and not sums:
            yield "under masks a node reads the sum alone, and with topology: all_to_all it gets each update. Use ring."
        if self.hashes and not sums:
            yield "with topology: all_to_all nobody hands on a sum whose hash could differ. Leave out hashes of all_reduce."
        if self.masks and n < 3:
            yield "of two nodes each learns the other's update from the sum. Set clients.total to at least 3."
        if self.masks:
            try:
                self.encoding().check(n)
            except ConfigError as error:
                yield f"all_reduce: {error}"

    def overheard(self, nodes: int, clients: int) -> Sight:
        """What nodes see that look: under masks single updates if there is but one other."""
        each = Sight.EACH_UPDATE if not self.masks or nodes == clients - 1 else Sight.NOTHING
        return each | Sight.SUM | Sight.MODEL | Sight.ROOT_DATA

    def listeners(self, setup: Setup, place: Seating, nodes: int, rounds: int) -> Listeners:
        """So many nodes of the collective."""
        schedule, sizes = self.schedule(setup.participation.total), setup.task.sizes
        seat = lookouts(neighbours(schedule), place, nodes, setup.rng.child("lookouts"))
        by_samples = setup.pipeline.rule.by_samples and self.topology != "all_to_all"
        weights, width = sizes if by_samples else [1] * len(sizes), setup.task.dim + by_samples
        return CollectiveListeners(seat, schedule, weights, bool(self.masks), width, setup.task.dim)

    def encoding(self, largest_weight: int = 1) -> Encoding:
        """How updates are written as numbers of the ring, under masks."""
        return Encoding(bits=self.masks or 20, clip=self.clip or 4.0, largest_weight=largest_weight)

    def start(self, setup: Setup) -> PeerRun:
        if self.topology == "all_to_all":
            return AllToAllRun(self, setup)
        splits = setup.attack is not None and type(setup.attack).hands_on is not PoisonAttack.hands_on
        return SplitRun(self, setup) if splits else SumRun(self, setup)


class Collective(PeerRun):
    """The exchange of one training."""

    def __init__(self, system: AllReduce, setup: Setup) -> None:
        super().__init__(setup)
        self.system = system

    @property
    def width(self) -> int:
        """Elements of a vector: the coordinates, and the number of examples where it counts, and under masks."""
        return len(self.model) + (self.setup.pipeline.rule.by_samples or self.system.masks is not None)

    def exchange(self, nodes: Sequence[int], round: int) -> float:
        seconds = self.carry(self.schedule(nodes), self.width, nodes)
        if not self.system.hashes:
            return seconds
        told = dict.fromkeys(nodes, (len(nodes) - 1) * HASH)
        return seconds + self.world.step(told, told)

    def schedule(self, nodes: Sequence[int]) -> Schedule:
        """Among these nodes: without those that are silent, groups may not come out even, and are one ring then."""
        group = self.system.group
        if group is not None and len(nodes) % group:
            return _schedule("ring", len(nodes), 1)
        return self.system.schedule(len(nodes))


class AllToAllRun(Collective):
    """Each node has all updates, and runs the rule by itself; with one seed all come to the same."""

    def __init__(self, system: AllReduce, setup: Setup) -> None:
        super().__init__(system, setup)
        self._receiver = PlainReceiver(setup)

    def received(self, sent: Sent) -> Received:
        return self._receiver.receive(sent)


class SumRun(Collective):
    """Each node has the sum, as the topology adds it up: of floats, or of masked numbers of the ring."""

    def __init__(self, system: AllReduce, setup: Setup) -> None:
        super().__init__(system, setup)
        self._weighted = setup.pipeline.rule.by_samples
        self._encoding = system.encoding(max(setup.claims) if self._weighted else 1)
        if system.masks:
            self._encoding.check(len(setup.claims))
        self._pairs = Pairs()

    def received(self, sent: Sent) -> Received:
        nodes = sent.clients
        if sent.not_finite or not nodes:
            return _nothing(
                sent, f"{len(sent.not_finite)} of {len(nodes)} nodes sent what is not finite, and so was the sum"
            )
        if self.system.masks and len(nodes) < 3:
            return _nothing(sent, f"{len(nodes)} nodes came, and it takes at least 3 for a sum to hide any")
        if not all(map(all_finite, sent.wire.added.values())):
            return _nothing(sent, "a node passed on a sum that was not finite")
        weights, masked = self._weights(sent.wire), None
        if self.system.masks:
            mean, masked = self._of_masked(sent, weights)
        else:
            mean = self._of_floats(sent, weights)
        if not all_finite(mean):
            return _nothing(sent, "the sum was not finite")
        return Received(
            rows=mean[None],
            behind=(nodes,),
            samples=torch.tensor([sum(weights[node] for node in nodes)], dtype=torch.float64),
            told=min(self.setup.told_among(len(nodes)), 1),
            clients=nodes,
            truth=sent.wire,
            masked=masked,
        )

    def _weights(self, wire: Wire) -> list[int]:
        """What each node multiplies its update by; of all nodes."""
        if not self._weighted:
            return [1] * len(self.setup.claims)
        sizes, claims = self.setup.task.sizes, self.setup.claims
        return [claims[node] if node in wire.malicious else size for node, size in enumerate(sizes)]

    def _of_floats(self, sent: Sent, weights: Sequence[int]) -> Tensor:
        """float32 ``[d]``: the mean, as all nodes come to it."""
        return self.ends(sent, weights, 1)[0]

    def ends(self, sent: Sent, weights: Sequence[int], some: int | None = None) -> Tensor:
        """float32 ``[n, d]``: the mean as each of the nodes has it.

        Args:
            some: of the first so many nodes.
        """
        wire, nodes = sent.wire, sent.clients
        parts = [wire.updates[wire.clients.index(node)] for node in nodes]
        if self._weighted:
            parts = [part * weights[node] for part, node in zip(parts, nodes, strict=True)]
        added, handed = (
            {nodes.index(node): vector for node, vector in lies.items()} for lies in (wire.added, wire.handed)
        )
        total = float(sum(weights[node] for node in nodes))
        return self.summed(self.schedule(nodes), parts, added, handed, some) / total

    def cuts(self, schedule: Schedule) -> list[slice]:
        """Where a vector of the model's length is cut; the last coordinate that is sent may be the number of examples."""
        return [slice(cut.start, min(cut.stop, len(self.model))) for cut in schedule.cuts(self.width)]

    def summed(
        self,
        schedule: Schedule,
        vectors: Sequence[Tensor],
        added: Mapping[int, Tensor],
        handed: Mapping[int, Tensor],
        some: int | None,
    ) -> Tensor:
        """float32 ``[n, d]``: the sum that each node ends with, chunk by chunk, as it would be added up.

        Args:
            vectors: float32 ``[d]`` of each node.
            added: by node, what a malicious one adds to the first sum of others that it passes on.
            handed: by node, what a malicious one hands on in place of a finished sum.
            some: of the first so many nodes; None for all.
        """
        sums = self.model.new_empty(len(vectors) if some is None else some, len(self.model))
        for chunk, cut in enumerate(self.cuts(schedule)):
            more, other = ({node: vector[cut] for node, vector in lies.items()} for lies in (added, handed))
            ends = carried(schedule, chunk, [vector[cut] for vector in vectors], added=more, handed=other)
            for whole, end in zip(sums, ends, strict=False):
                whole[cut] = end
        return sums

    def _of_masked(self, sent: Sent, weights: Sequence[int]) -> tuple[Tensor, MaskedRound]:
        """The same on masked numbers of the ring, and what the masks came to. What keys take is traffic, and no time."""
        setup, encoding, nodes, schedule = self.setup, self._encoding, sent.clients, self.schedule(sent.clients)
        _, handed = self._pairs.introduce(nodes)
        self.world.carry(KEY * handed)
        inputs = Inputs(sent, encoding, None, weights, setup.rng.child("masking"), "all")
        vectors = [self.message(inputs, node, sent) for node in nodes]
        added = {nodes.index(node): self._encoded(vector, inputs) for node, vector in sent.wire.added.items()}
        total = np.empty_like(vectors[0])
        for chunk, cut in enumerate(schedule.cuts(self.width)):
            more = {node: vector[cut] for node, vector in added.items()}
            total[cut] = carried(schedule, chunk, [vector[cut] for vector in vectors], added=more)[0]
        summed, weight = encoding.decode(total, dim=inputs.dim, seed=inputs.seed)
        mean, true = torch.from_numpy(summed / max(weight, 1)), inputs.mean(nodes)
        return mean.to(self.model.dtype), MaskedRound(
            clients=len(nodes),
            sessions=1,
            aborted=(),
            survivors=len(nodes),
            anonymity=len(nodes) - setup.protocol.colluders(len(nodes)),
            contributors=None,
            error=float((mean - true).norm() / true.norm()) if true.norm() > 0 else None,
            clipped=inputs.clipped(nodes),
            bytes_up=ELEMENT * sum(schedule.traffic(self.width).sent) + KEY * handed,
            bytes_down=0,
        )

    def message(self, inputs: Inputs, node: int, sent: Sent) -> NDArray[np.uint32]:
        """uint32 ``[d + 1]``: what a node puts in instead of its update and its number of examples."""
        vector = inputs.encoded(node).astype(np.uint32)
        self._pairs.mask(vector, node, sent.clients, sent)
        return vector

    def _encoded(self, added: Tensor, inputs: Inputs) -> NDArray[np.uint32]:
        """uint32 ``[d + 1]``: what a malicious node adds to a masked sum, which counts no examples."""
        vector = self._encoding.encode_raw(added.numpy(), weight=1, seed=inputs.seed).astype(np.uint32)
        vector[-1] = 0
        return vector


class SplitRun(SumRun):
    """The same where some hand on other sums than they got: each node has a model of its own.

    What malicious nodes know of the model, and what the rule does, is of the honest nodes' mean model.
    """

    def __init__(self, system: AllReduce, setup: Setup) -> None:
        super().__init__(system, setup)
        n = setup.participation.total
        self._models = self.model.expand(n, -1).clone()
        self._steps = [ServerStep(setup.training, self.model) for _ in range(n)]
        self._honest = tuple(node for node in range(n) if node not in setup.malicious)
        self._means: dict[int, Tensor] = {}
        self._messages = 0
        self._links: tuple[tuple[int, int], ...] = ()

    @property
    def starts(self) -> Tensor:
        return self._models

    def received(self, sent: Sent) -> Received:
        self._means = {}
        found = super().received(sent)
        honest = [self._means[node] for node in self._honest if node in self._means]
        if not all(map(all_finite, honest)):
            return _nothing(sent, "a node handed on a sum that was not finite")
        if self.system.hashes and len({sha256(mean.numpy().tobytes()).digest() for mean in honest}) > 1:
            return _nothing(sent, "the nodes' sums differ, as their hashes tell")
        return found

    def _of_floats(self, sent: Sent, weights: Sequence[int]) -> Tensor:
        """float32 ``[d]``: the mean of what honest nodes end with; each node's is kept."""
        schedule, nodes = self.schedule(sent.clients), sent.clients
        ends = self.ends(sent, weights)
        self._means = dict(zip(nodes, ends, strict=True))
        self._messages += sum(map(len, schedule.steps))
        self._links = tuple(sorted({(nodes[one.source], nodes[one.to]) for step in schedule.steps for one in step}))
        return torch.stack([self._means[node] for node in self._honest if node in self._means]).mean(0)

    def move(self, vector: Tensor) -> None:
        for node, mean in self._means.items():
            self._models[node] = self._steps[node].moved(self._models[node], mean)
        self.model = self._models[list(self._honest)].mean(0)

    def _report(
        self, nodes: tuple[int, ...], round: int, sent: Sent, received: Received, result: Aggregate | str
    ) -> RoundReport:
        told = NodesReport(self._messages, self._links)
        found = replace(super()._report(nodes, round, sent, received, result), nodes=told)
        own = self._models[list(self._honest)]
        return by_node(self.setup, self.clients, own, self._honest, found) if self.setup.due(round) else found


def _nothing(sent: Sent, why: str) -> Received:
    return Received(sent.wire.updates[:0], (), None, 0, sent.clients, sent.wire, why=why)


@cache
def _schedule(topology: str, nodes: int, group: int) -> Schedule:
    return TOPOLOGIES[topology](nodes, group)
