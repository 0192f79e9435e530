"""What grows with the number of all clients while 100 take part in a round: examples/cross_device.yaml, CPU time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measure import arguments, keep

from fedguard.api import lay_out
from fedguard.bench.records.record import to_text
from fedguard.bench.running.environment import peak_memory
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.config import PlannedCell
from fedguard.metrics.dissimilarity import dissimilarity
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.data import load_dataset

EXAMPLE = Path(__file__).parents[1] / "examples" / "cross_device.yaml"


def measured(clients: int, rounds: int) -> dict[str, Any]:
    """Seconds for the data's way to the clients and for the dissimilarity; milliseconds of a round and of its training."""
    cell = lay_out(EXAMPLE, overrides=[f"clients.total={clients}", "clients.malicious=0", f"training.rounds={rounds}"])[
        1
    ].cells[0]
    load_dataset(cell.data)
    task, deal = timed(
        lambda: Classification.deal(cell.data, cell.model, cell.partition, clients, Rng(0).child("partition"))
    )
    _, differ = timed(lambda: dissimilarity(task, Rng(0)))
    whole, training = rounds_of(cell, task)
    record, _ = run_trial(cell, 0, {})
    return {
        "clients": clients,
        "deal, s": deal,
        "dissimilarity, s": differ,
        "round, ms": whole,
        "its training, ms": training,
        "record, bytes": len(to_text(record)),
        "peak, MiB": (peak_memory() or 0) / 2**20,
    }


def rounds_of(cell: PlannedCell, task: Classification) -> tuple[float, float]:
    """Medians over rounds that are not evaluated, in milliseconds; the same clients train again, alone."""
    setup, plan = set_up(cell, 0, task), cell.plan
    whole, alone = [], []
    running = cell.architecture.run(setup)
    begun = time.process_time()
    for report in running:
        if report.evaluation is None:
            whole.append(time.process_time() - begun)
            out = torch.empty(len(report.chosen), task.dim)
            _, spent = timed(lambda: task.local_updates(report.model, report.chosen, plan, Rng(1), out))  # noqa: B023
            alone.append(spent)
        begun = time.process_time()
    return 1000 * median(whole), 1000 * median(alone)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and the seconds of CPU."""
    begun = time.process_time()
    result = work()
    return result, time.process_time() - begun


def main() -> None:
    """Print a line for each number of clients."""
    options = arguments(__doc__ or "")
    sys.path.append(str(EXAMPLE.parent))
    figures = [measured(clients, 5 if options.smoke else 40) for clients in (100, 1000, 10_000)]
    for found in figures:
        print("  ".join(f"{name}: {value:.4g}" for name, value in found.items()))
    keep(options.json, figures)


if __name__ == "__main__":
    main()
