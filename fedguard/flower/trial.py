"""One run of an app in a process of its own: JSON comes in, JSON goes out. `python -m fedguard.flower.trial OUT < ASKED`"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from flwr.app import Message
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.result import Result

from fedguard.bench.running.environment import peak_memory
from fedguard.errors import ConfigError, FedGuardError
from fedguard.flower.grid import GuardedGrid, under_attack
from fedguard.flower.inline import FlowerApp, run_inline
from fedguard.flower.records import SAMPLES

#: Evaluations over rounds: the round, and what was measured there.
Curve = list[tuple[int, dict[str, float]]]


def run_trial(
    *,
    app: str | Path,
    settings: Mapping[str, Any] | None,
    attack: str | None,
    defense: str | None,
    f: int,
    nodes: int,
    seed: int,
    metric: str | None,
    knowledge: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Run an app once, and tell how its model fared.

    Figures are those that the app itself measures: what its server evaluates, if it does, else what honest nodes report,
    weighed by their numbers of examples. What malicious nodes report counts for nothing.

    Returns:
        round, accuracy, loss: lists of one length; metric: what accuracy is; where: who measured it; malicious: partition
        numbers; rounds, updates, dropped; abandoned: reasons; raised: tracebacks of client apps; seconds, cpu_seconds, memory.

    Raises:
        ConfigError: no such app, or no figure in what it measures.
        NotAllowed: attack or rule have no place there.
    """
    torch.set_num_threads(1)
    began, cpu = time.perf_counter(), time.process_time()
    read = FlowerApp.read(app, settings)
    server, client = read.load()
    place: list[_Watching] = []
    with _results() as results:
        guarded = under_attack(
            server,
            attack=attack,
            defense=defense,
            f=f,
            seed=seed,
            knowledge=knowledge,
            grid=_Watching,
            hear=place.append,
        )  # type: ignore[arg-type]
        grid = run_inline(guarded, client, nodes=nodes, config=read.config, seed=seed)
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
    name, loss = _metric(curve, metric, read.folder)
    return {
        "metric": name,
        "where": where,
        "round": [number for number, _ in curve],
        "accuracy": [_share(found[name], name, read.folder) for _, found in curve],
        "loss": [found.get(loss) if loss else None for _, found in curve],
        "malicious": sorted(node - 2 for node in seen.malicious),
        "rounds": seen.rounds,
        "updates": seen.updates,
        "hostile_share": seen.hostile_share,
        "outvoted": seen.outvoted,
        "dropped": seen.dropped,
        "abandoned": seen.abandoned,
        "raised": grid.raised,
        "bytes": seen.bytes,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "memory": peak_memory(),
    }


class _Watching(GuardedGrid):
    """Listens to what honest nodes say when they are asked to evaluate."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.curve: Curve = []

    def evaluated(self, replies: Sequence[Message]) -> None:
        sums: dict[str, float] = {}
        total = 0.0
        for reply in replies:
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
        raise ConfigError(f"{folder}: --metric: expected one of {', '.join(names)}; got {got}.")
    losses = [name for name in names if "loss" in name.lower()]
    return fitting[0], losses[0] if len(losses) == 1 else None


def _share(value: float, name: str, folder: Path) -> float:
    if not 0 <= value <= 1:
        raise ConfigError(f"{folder}: {name}: expected an accuracy in [0, 1]; got {value:.4g}.")
    return value


def main() -> None:
    """Run what stands on standard input."""
    out = Path(sys.argv[1])
    try:
        told = {"status": "ok", "found": run_trial(**json.load(sys.stdin))}
    except FedGuardError as error:
        told = {"status": "refused" if type(error).__name__ == "NotAllowed" else "mistake", "reason": str(error)}
    out.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
