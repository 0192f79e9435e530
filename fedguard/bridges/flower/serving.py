"""The outcome of a trial of an app, measured where the app's server runs, in whatever process that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.result import Result

from fedguard.bridges.flower.app import FlowerApp, configure_context
from fedguard.bridges.flower.grid import GuardedGrid, under_attack
from fedguard.bridges.flower.node import drawing
from fedguard.bridges.flower.records import SAMPLES
from fedguard.bridges.flower.witness import EvaluationGrid
from fedguard.bridges.jobs import Curve, TrialRequest, read_curve
from fedguard.bridges.seen import TrainingObservations
from fedguard.errors import ConfigError
from fedguard.rng import Rng


def serve_app(
    asked: TrialRequest, read: FlowerApp, grid: Grid, context: Context, partitions: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """Run the server's side of an app to its end, and return the metrics of its model.

    The metrics are those that the app itself measures: on its server if it evaluates there, else the reports of honest nodes,
    weighted by their numbers of examples. Reports of malicious nodes are ignored.

    Args:
        read: the app's folder, as the server's process sees it.
        partitions: node -> ``partition-id``; None to ask the nodes.

    Returns:
        round, accuracy, loss: lists of equal length; metric: the app's name for accuracy; where: which side measured it;
        malicious: their partitions; rounds, updates, hostile_share, outvoted, dropped, bytes; lost: number of missing answers;
        gone: by the partition of a node that stopped answering, the first round without it; abandoned: reasons; raised: errors
        of client apps. If client apps raised and nothing was measured, only raised.

    Raises:
        ConfigError: the app does not train, or measures nothing, or waits for nodes that are lost.
        NotAllowed: attack or rule cannot be used there.
    """
    place: list[EvaluationGrid] = []

    def hear(one: GuardedGrid) -> None:
        assert isinstance(one, EvaluationGrid)
        one.meet(asked.nodes, partitions)
        if asked.observer is not None:
            one.seen = TrainingObservations(asked.observer.watches)
        place.append(one)

    guarded = under_attack(
        read.server_app(),
        attack=asked.attack,
        defense=asked.defense,
        f=asked.f,
        assumed_f=asked.assumed_f,
        seed=asked.seed,
        knowledge=asked.knowledge,
        grid=EvaluationGrid,
        hear=hear,
    )

    def key_of(strategy: Strategy) -> None:
        inner = getattr(strategy, "strategy", strategy)  # such as Flower's wrappers for differential privacy have
        place[0].weighted_by_key = getattr(inner, "weighted_by_key", SAMPLES)

    with _results(key_of) as results, drawing(Rng(asked.seed).child("server")):
        guarded(grid, configure_context(context, read.config))
    seen = place[0]
    if not seen.rounds:
        raise ConfigError(f"{read.folder}: expected an app that trains; it sent no message of training.")
    if seen.seen is not None and asked.kept is not None:
        for result in results[-1:]:
            seen.seen.record_model({key: array.numpy() for key, array in result.arrays.items()})
        seen.seen.save(Path(asked.kept))
    central: Curve = [
        (number, {key: float(value) for key, value in record.items() if isinstance(value, int | float)})
        for result in results
        for number, record in sorted(result.evaluate_metrics_serverapp.items())
        if number > 0  # 0 is Flower's evaluation of the initial model
    ]
    curve, where = (central, "the app's server") if central else (seen.curve, "the honest nodes")
    if not curve and seen.raised:
        return {"raised": seen.raised}
    advice = "Give its client app an evaluate function, or its strategy an evaluate_fn."
    return {
        **read_curve(curve, asked.metric, read.folder, advice),
        "where": where,
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


@contextmanager
def _results(started_with: Callable[[Strategy], None] = lambda _: None) -> Iterator[list[Result]]:
    """Collect the results of all strategies that an app starts, and call ``started_with`` with each before it starts."""
    # Flower passes a result only to the app's own main, which may drop it: so `Strategy.start` is patched meanwhile
    found: list[Result] = []
    start = Strategy.start

    def start_and_record(self: Strategy, *arguments: Any, **named: Any) -> Result:
        started_with(self)
        result = start(self, *arguments, **named)
        found.append(result)
        return result

    Strategy.start = start_and_record  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Strategy.start = start  # type: ignore[method-assign]
