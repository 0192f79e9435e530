"""The outcome of a trial of an app, measured where the app's server runs, in whatever process that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.result import Result

from fedguard.errors import ConfigError
from fedguard.flower.app import FlowerApp, configure_context
from fedguard.flower.grid import GuardedGrid, under_attack
from fedguard.flower.node import drawing
from fedguard.flower.records import SAMPLES
from fedguard.flower.seen import AppObserver, TrainingObservations
from fedguard.flower.witness import Curve, EvaluationGrid
from fedguard.rng import Rng


@dataclass(frozen=True)
class TrialRequest:
    """A trial of an app, in a form that JSON can hold.

    Attributes:
        app: the app's folder.
        settings: override its run configuration.
        attack, defense: specs; None for no attack, and for the app's own strategy alone.
        f, nodes: number of malicious nodes, and of all.
        metric: the app's name for its accuracy; None to find it.
        knowledge: what malicious nodes see.
        assumed_f: number of malicious nodes that the rule assumes; the true f by default.
        engine: ``inline``, ``simulation`` or ``deployment``.
        looks: fields of the observer of the messages, a `fedguard.flower.seen.AppObserver`; None for no observer.
        kept: the file for its observations.
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
    assumed_f: int | None = None
    engine: str = "inline"
    looks: Mapping[str, Any] | None = None
    kept: str | None = None

    @property
    def observer(self) -> AppObserver | None:
        """The observer of the messages."""
        return None if self.looks is None else AppObserver(**self.looks)

    @property
    def read(self) -> FlowerApp:
        """The app with its run's configuration."""
        return FlowerApp.read(self.app, self.settings)


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
