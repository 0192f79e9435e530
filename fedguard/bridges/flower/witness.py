"""The Grid of an app under check: it collects the reports of honest nodes, and records what an observer may see."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from torch import Tensor

from fedguard.bridges.flower.grid import GuardedGrid
from fedguard.bridges.flower.node import OURS, WHO
from fedguard.bridges.flower.records import arrays_of, is_masked
from fedguard.bridges.jobs import Curve
from fedguard.bridges.seen import TrainingObservations
from fedguard.errors import ConfigError, NotAllowed
from fedguard.states import Layout

#: Flower's error codes for a missing answer: message, reply or node are unavailable.
GONE = (3, 4, 5)
#: Seconds for which a strategy may wait for nodes after some are lost: in an app under check no node returns.
WAITING = 15.0


class EvaluationGrid(GuardedGrid):
    """A Grid that collects the evaluations of honest nodes, and identifies nodes by their partitions.

    Nodes and replies are in the order of partitions, whatever node ids an engine assigns. An app that samples nodes thus
    samples the same ones on every engine.

    Attributes:
        curve: the evaluations of honest nodes.
        lost: number of answers that are missing because a node was gone.
        gone: by the partition of each node that stopped answering, the first round without an answer of it.
        raised: errors of client apps.
        seen: what an observer records of the training rounds; None without an observer.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.curve: Curve = []
        self.lost = 0
        self.gone: dict[int, int] = {}
        self._waits_since: float | None = None
        self.raised: list[str] = []
        self.seen: TrainingObservations | None = None
        self._partitions: dict[int, int] = {}

    def meet(self, nodes: int, partitions: Mapping[int, int] | None) -> None:
        """Learn the partition of each node, from the nodes themselves unless it is given.

        Raises:
            ConfigError: the nodes do not have the partitions 0 to ``nodes`` - 1, one each.
        """
        # Flower draws node ids at random and does not tell a server the configuration of a node
        if partitions is None:
            asked = [Message(RecordDict({OURS: ConfigRecord({})}), node, WHO) for node in self._grid.get_node_ids()]
            partitions = {
                one.metadata.src_node_id: int(one.content.config_records[OURS]["partition-id"])  # type: ignore[arg-type]
                for one in self._grid.send_and_receive(asked)
                if one.has_content()
            }
        if sorted(partitions.values()) != list(range(nodes)):
            raise ConfigError(
                f"expected {nodes} nodes, each with a part of its own; got {sorted(partitions.values())}."
            )
        self._partitions = dict(partitions)

    def rank(self, node: int) -> int:
        return self._partitions.get(node, node)

    def get_node_ids(self) -> Iterable[int]:
        """The connected nodes, sorted by partition.

        Raises:
            ConfigError: nodes are lost, and the strategy keeps asking because it waits for more nodes than are left.
        """
        # Flower's `sample_nodes` asks in a loop without end; any message in between shows that it has gone on
        there = sorted(super().get_node_ids(), key=self.rank)
        lost = sorted(set(self._partitions.values()) - {self.rank(node) for node in there})
        now = time.monotonic()
        self._waits_since = None if not self.rounds or not lost else self._waits_since or now
        if self._waits_since is not None and now - self._waits_since > WAITING:
            raise ConfigError(
                f"after round {self.rounds} the app's strategy waits for more nodes than the {len(there)} that are left of "
                f"{len(self._partitions)}, and {'node' if len(lost) == 1 else 'nodes'} {', '.join(map(str, lost))} will not "
                "come back. Lower its min_available_nodes, or give it more nodes."
            )
        return there

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        asked = list(messages)
        self._waits_since = None
        self._look(asked)
        replies = list(super().send_and_receive(asked, timeout=timeout))
        failed = [one.error for one in replies if one.has_error()]
        self.raised += [str(one.reason) for one in failed if one.code not in GONE]
        answered = {one.metadata.src_node_id for one in replies if not one.has_error() or one.error.code not in GONE}
        silent = {self.rank(one.metadata.dst_node_id) for one in asked} - set(map(self.rank, answered))
        self.lost += sum(one.code in GONE for one in failed) + len(asked) - len(replies)
        for node in silent:
            self.gone.setdefault(node, self.rounds)
        return sorted(replies, key=lambda one: self.rank(one.metadata.src_node_id))

    def _look(self, asked: Sequence[Message]) -> None:
        """Record the model in training messages. Raises NotAllowed if an observer would see masks instead of updates."""
        if self.seen is None or not asked:
            return
        if any(map(is_masked, asked)):
            raise NotAllowed(
                "observer: secure aggregation is at work, and who looks at the server sees masked vectors in place of each "
                "node's update. Leave out the attack on privacy, or run the app without SecAgg+ to see what the masks hide."
            )
        if len(asked[0].content.array_records) == 1:
            self.seen.record_model(arrays_of(asked[0], "the server's message")[1])

    def record_training(self, layout: Layout, starts: Tensor, updates: Tensor, nodes: Sequence[int]) -> None:
        if self.seen is not None:
            self.seen.record_training(layout, starts, updates, [self.rank(node) for node in nodes])

    def record_evaluation(self, replies: Sequence[Message]) -> None:
        sums: dict[str, float] = {}
        total = 0.0
        for reply in sorted(replies, key=lambda one: self.rank(one.metadata.src_node_id)):
            if not reply.has_content() or reply.metadata.src_node_id in self.malicious:
                continue
            # As FedAvg does: the mean weighted by the number of examples, which is itself no metric
            for record in reply.content.metric_records.values():
                said = {key: float(value) for key, value in record.items() if isinstance(value, int | float)}
                weight = said.pop(self.weighted_by_key, 1.0)
                total += weight
                for key, value in said.items():
                    sums[key] = sums.get(key, 0.0) + weight * value
        if total > 0 and sums:
            self.curve.append((self.rounds, {key: value / total for key, value in sums.items()}))
