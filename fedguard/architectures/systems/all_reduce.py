"""All-reduce: nodes add up their updates among themselves (Patarasu and Yuan, JPDC 2009; Horovod, 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from fedguard.architectures.collectives.listening import CollectiveListeners, neighbors
from fedguard.architectures.collectives.schedule import Schedule
from fedguard.architectures.systems.peers import PeerRun, Peers
from fedguard.architectures.systems.sums import AllToAllRun, SplitRun, SumRun, build_schedule
from fedguard.contracts import (
    Cell,
    Exposure,
    Listeners,
    PoisonAttack,
    PositiveFloat,
    PositiveInt,
    Seating,
    Setup,
    Sight,
)
from fedguard.contracts.channels import FINISHED_SUMS, PARTIAL_SUMS
from fedguard.contracts.lying import Channels
from fedguard.errors import ConfigError
from fedguard.secagg.encoding import Encoding
from fedguard.simulated.topology import lookouts


@dataclass(frozen=True, kw_only=True)
class AllReduce(Peers):
    """All nodes train from one model, add up their updates among themselves, and each moves its own copy of the model.

    $w <- w + server_lr * (1/n) sum_i x_i$ at every node, summed in the order of the topology.

    ``ring`` cuts the vector into n chunks that go around twice, see `fedguard.architectures.collectives.ring`;
    ``hierarchical`` has rings within groups and across them; in ``reduce_broadcast`` node 0 adds up. No node is given each
    update, so only rules that need the sum can run. With weights by samples each node multiplies its update by its number of
    examples, which is summed as one more coordinate. In ``all_to_all`` each node has all updates, and runs any rule itself.

    Malicious nodes that tap all links see what every node adds, except under ``masks``.

    Args:
        topology: the pattern of messages.
        group: number of nodes in a group of ``hierarchical``; it divides the number of nodes.
        masks: bits of a coordinate, sign included, if each pair of nodes adds masks that cancel in the sum modulo $2^32$; None
            for no masks.
        clip: under masks, the largest absolute value of a coordinate that an honest node sends.
        hashes: whether nodes exchange a hash of their sums, and do not move unless all are equal; who passed on a false sum
            they do not learn.
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
        """What each node sees for its rule, and what malicious nodes see."""
        if self.topology == "all_to_all":
            seen = Sight.EACH_UPDATE | Sight.GROUP_SUMS
        else:
            seen = Sight.MASKED if self.masks else Sight.NOTHING
        tapped = Sight.NOTHING if self.masks else Sight.HONEST_UPDATES
        return Exposure(seen | Sight.SUM | Sight.MODEL, tapped | Sight.OWN_DATA | Sight.MODEL | Sight.RULE)

    @property
    def channels(self) -> Channels:  # type: ignore[override]
        """Sums go through other nodes, unless each sends its own to all."""
        if self.topology == "all_to_all":
            return frozenset()
        handed = self.topology in ("ring", "hierarchical") and not self.masks
        return frozenset({PARTIAL_SUMS, FINISHED_SUMS} if handed else {PARTIAL_SUMS})

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
        """As for any algorithm; parameters that are None or False are left out."""
        return {key: value for key, value in super().spec().items() if value is not None and value is not False}

    def schedule(self, nodes: int) -> Schedule:
        """The messages among ``nodes`` nodes."""
        return build_schedule(self.topology, nodes, self.group or 1)

    def reasons(self, cell: Cell) -> Iterator[str]:
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
        if cell.algorithm.acts and isinstance(cell.adversary, PoisonAttack) and FINISHED_SUMS in cell.adversary.lies:
            yield (
                f"{cell.adversary.name} leaves each node of all_reduce with a model of its own, judged by its accuracy, "
                f"and the models of {cell.algorithm.name} have returns. Use partial_sum or sign_flip."
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

    def eavesdropper_sight(self, nodes: int, clients: int) -> Sight:
        """What observing nodes see: under masks single updates only if there is one other node."""
        # All but one collude: the sum without their own updates is the update of the last one
        each = Sight.EACH_UPDATE if not self.masks or nodes == clients - 1 else Sight.NOTHING
        return each | Sight.SUM | Sight.MODEL | Sight.ROOT_DATA

    def listeners(self, setup: Setup, place: Seating, nodes: int, rounds: int) -> Listeners:
        """``nodes`` observing nodes of the collective."""
        schedule, sizes = self.schedule(setup.cell.clients.total), setup.task.sizes
        seat = lookouts(neighbors(schedule), place, nodes, setup.rng.child("lookouts"))
        by_samples = setup.cell.pipeline.rule.by_samples and self.topology != "all_to_all"
        weights, width = sizes if by_samples else [1] * len(sizes), setup.task.dim + by_samples
        return CollectiveListeners(seat, schedule, weights, bool(self.masks), width, setup.task.dim)

    def encoding(self, largest_weight: int = 1) -> Encoding:
        """Encoding of updates as ring elements, under masks."""
        return Encoding(bits=self.masks or 20, clip=self.clip or 4.0, largest_weight=largest_weight)

    def start(self, setup: Setup) -> PeerRun:
        if self.topology == "all_to_all":
            return AllToAllRun(self, setup)
        # Nodes need models of their own only if some of them pass on false sums
        splits = setup.cell.attack is not None and FINISHED_SUMS in setup.cell.attack.lies
        return SplitRun(self, setup) if splits else SumRun(self, setup)
