"""What a trial of an app comes to, as it is seen where the app's server is: in whichever process that may be."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.result import Result

from fedguard.errors import ConfigError
from fedguard.flower.app import FlowerApp, configured
from fedguard.flower.grid import GuardedGrid, under_attack
from fedguard.flower.node import OURS, WHO, drawing
from fedguard.flower.records import SAMPLES
from fedguard.rng import Rng

#: Evaluations over rounds: the round, and what was measured there.
Curve = list[tuple[int, dict[str, float]]]
#: Flower's codes of an answer that never came: the message or its reply are gone, or the node is.
GONE = (3, 4, 5)
#: Seconds for which a strategy may wait for nodes after some are lost: in an app under check none comes back.
WAITING = 15.0


@dataclass(frozen=True)
class Asked:
    """A trial, as JSON tells it.

    Attributes:
        app: the folder.
        settings: over its run configuration.
        attack, defense: specs; None for no attack, and for the app's own strategy alone.
        f, nodes: malicious nodes, and all.
        metric: how the app calls its accuracy; None to find it.
        knowledge: what malicious nodes see.
        told: the f that the rule is told; that of the truth by default.
        engine: where it runs: ``inline``, ``simulation`` or ``deployment``.
    """

    app: str
    settings: Mapping[str, Any]
    attack: str | None
    defense: str | None
    f: int
    nodes: int
    seed: int
    metric: str | None = None
    knowledge: Sequence[str] | None = None
    told: int | None = None
    engine: str = "inline"

    @property
    def read(self) -> FlowerApp:
        """The app with its run's configuration."""
        return FlowerApp.read(self.app, self.settings)


def served(
    asked: Asked, read: FlowerApp, grid: Grid, context: Context, partitions: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """Run the server's side of an app to its end, and tell how its model fared.

    Figures are those that the app itself measures: what its server evaluates, if it does, else what honest nodes report,
    weighed by their numbers of examples. What malicious nodes report counts for nothing.

    Args:
        read: the app as it lies where its server runs.
        partitions: node -> ``partition-id``; None to ask the nodes.

    Returns:
        round, accuracy, loss: lists of one length; metric: what accuracy is; where: who measured it; malicious: partition
        numbers; rounds, updates, dropped; lost: answers that did not come; gone: by the
        partition of a node that stopped answering, from which round; abandoned: reasons; raised: what client apps raised.

    Raises:
        ConfigError: the app does not train, or measures nothing, or waits for nodes that are lost.
        NotAllowed: attack or rule have no place there.
    """
    place: list[Witness] = []

    def hear(one: GuardedGrid) -> None:
        assert isinstance(one, Witness)
        one.meet(asked.nodes, partitions)
        place.append(one)

    guarded = under_attack(
        read.server_app(),
        attack=asked.attack,
        defense=asked.defense,
        f=asked.f,
        told=asked.told,
        seed=asked.seed,
        knowledge=asked.knowledge,
        grid=Witness,
        hear=hear,
    )
    with _results() as results, drawing(Rng(asked.seed).child("server")):
        guarded(grid, configured(context, read.config))
    seen = place[0]
    if not seen.rounds:
        raise ConfigError(f"{read.folder}: expected an app that trains; it sent no message of training.")
    central: Curve = [
        (number, {key: float(value) for key, value in record.items() if isinstance(value, int | float)})
        for result in results
        for number, record in sorted(result.evaluate_metrics_serverapp.items())
        if number > 0
    ]
    curve, where = (central, "the app's server") if central else (seen.curve, "the honest nodes")
    if not curve and seen.raised:
        return {"raised": seen.raised}
    name, loss = _metric(curve, asked.metric, read.folder)
    return {
        "metric": name,
        "where": where,
        "round": [number for number, _ in curve],
        "accuracy": [_share(found[name], name, read.folder) for _, found in curve],
        "loss": [found.get(loss) if loss else None for _, found in curve],
        "malicious": sorted(seen.rank(node) for node in seen.malicious),
        "rounds": seen.rounds,
        "updates": seen.updates,
        "hostile_share": seen.hostile_share,
        "outvoted": seen.outvoted,
        "dropped": seen.dropped,
        "lost": seen.lost,
        "gone": {str(node): number for node, number in sorted(seen.gone.items())},
        "abandoned": seen.abandoned,
        "raised": seen.raised,
        "bytes": seen.bytes,
    }


class Witness(GuardedGrid):
    """Listens to what honest nodes say when they are asked to evaluate, and knows nodes by their partitions.

    Nodes, and their replies, are in the order of partitions, whatever numbers an engine gives them: so that an app that draws
    some of them draws the same ones everywhere.

    Attributes:
        curve: what honest nodes reported.
        lost: answers that did not come, since a node was gone.
        gone: by the partition of each node that stopped answering, the first round that lacks an answer of it.
        raised: what client apps raised.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.curve: Curve = []
        self.lost = 0
        self.gone: dict[int, int] = {}
        self._waits_since: float | None = None
        self.raised: list[str] = []
        self._partitions: dict[int, int] = {}

    def meet(self, nodes: int, partitions: Mapping[int, int] | None) -> None:
        """Learn which part of the data each node has, from the nodes themselves unless it is given.

        Raises:
            ConfigError: there are not so many nodes.
        """
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
        """The nodes that are there, by their partitions.

        Raises:
            ConfigError: some are lost, and it is asked again and again: a strategy waits for more than are left.
        """
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
        replies = list(super().send_and_receive(asked, timeout=timeout))
        failed = [one.error for one in replies if one.has_error()]
        self.raised += [str(one.reason) for one in failed if one.code not in GONE]
        answered = {one.metadata.src_node_id for one in replies if not one.has_error() or one.error.code not in GONE}
        silent = {self.rank(one.metadata.dst_node_id) for one in asked} - set(map(self.rank, answered))
        self.lost += sum(one.code in GONE for one in failed) + len(asked) - len(replies)
        for node in silent:
            self.gone.setdefault(node, self.rounds)
        return sorted(replies, key=lambda one: self.rank(one.metadata.src_node_id))

    def evaluated(self, replies: Sequence[Message]) -> None:
        sums: dict[str, float] = {}
        total = 0.0
        for reply in sorted(replies, key=lambda one: self.rank(one.metadata.src_node_id)):
            if not reply.has_content() or reply.metadata.src_node_id in self.malicious:
                continue
            for record in reply.content.metric_records.values():
                said = {key: float(value) for key, value in record.items() if isinstance(value, int | float)}
                weight = said.pop(SAMPLES, 1.0)
                total += weight
                for key, value in said.items():
                    sums[key] = sums.get(key, 0.0) + weight * value
        if total > 0 and sums:
            self.curve.append((self.rounds, {key: value / total for key, value in sums.items()}))


@contextmanager
def _results() -> Iterator[list[Result]]:
    """What strategies return to the app that started them, which alone has it."""
    found: list[Result] = []
    start = Strategy.start

    def started(self: Strategy, *arguments: Any, **named: Any) -> Result:
        result = start(self, *arguments, **named)
        found.append(result)
        return result

    Strategy.start = started  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Strategy.start = start  # type: ignore[method-assign]


def _metric(curve: Curve, wanted: str | None, folder: Path) -> tuple[str, str | None]:
    """The names of the accuracy and of the loss.

    Raises:
        ConfigError: none, or several, that might be meant.
    """
    names = sorted({name for _, found in curve for name in found})
    if not names:
        raise ConfigError(
            f"{folder}: expected an app that evaluates; neither its nodes nor its server measured anything. Give its client "
            "app an evaluate function, or its strategy an evaluate_fn."
        )
    fitting = (
        [name for name in names if name == wanted] if wanted else [name for name in names if "acc" in name.lower()]
    )
    if len(fitting) != 1:
        got = wanted or " and ".join(fitting) or "none"
        raise ConfigError(f"{folder}: metric: expected one of {', '.join(names)}; got {got}.")
    losses = [name for name in names if "loss" in name.lower()]
    return fitting[0], losses[0] if len(losses) == 1 else None


def _share(value: float, name: str, folder: Path) -> float:
    if not 0 <= value <= 1:
        raise ConfigError(f"{folder}: {name}: expected an accuracy in [0, 1]; got {value:.4g}.")
    return value
