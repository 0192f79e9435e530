"""How seconds and memory grow with clients, parameters, cells and processes, and by which power beside the expected one.

The exponent is the slope of a straight line through the logarithms, fixed costs included, so small sizes pull it down.
Rules and training are timed in CPU seconds of one thread; suites, which have processes of their own, by the clock on the wall.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from measure import alternate, arguments, keep, peak_memory
from scipy.stats import linregress
from torch import Tensor

import fedguard as fg
from fedguard.contracts import Examples, LocalPlan
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.network import FlatNetwork

Job = Callable[[], object]
Figure = dict[str, Any]

#: Rule -> the exponents expected in n and in d. A coordinate's median is found by a sorting network, n log^2 n comparisons.
RULES = {
    "median": ("1, and log^2 n", "1"),
    "krum": ("at most 2", "1"),
    "nnm >> trimmed_mean": ("at most 2", "1"),
}
#: A job that is done sooner is timed several times in a row.
SHORTEST = 0.05


def rules(clients: Sequence[int], d: int, lengths: Sequence[int], n: int, repeats: int) -> list[Figure]:
    """Each rule as n grows, and as d does; all rounds lie in one piece of memory."""
    numbers = torch.randn(max(max(clients) * d, n * max(lengths)))
    figures = []
    for rule, (in_n, in_d) in RULES.items():
        by_n = {rows: _aggregation(rule, numbers, rows, d) for rows in clients}
        figures.append(_curve(rule, "n", f"d = {d:,}", by_n, in_n, repeats))
        by_d = {columns: _aggregation(rule, numbers, n, columns) for columns in lengths}
        figures.append(_curve(rule, "d", f"n = {n}", by_d, in_d, repeats))
    return figures


def _aggregation(rule: str, numbers: Tensor, n: int, d: int) -> Job:
    updates = numbers[: n * d].view(n, d)
    return lambda: fg.aggregate(rule, updates, f=n // 5)


def training(clients: Sequence[int], size: int, repeats: int) -> Figure:
    """Honest training of ever more clients of one cohort: an MLP 784-200-10, one epoch with batches of 20."""
    draw = torch.Generator().manual_seed(0)
    parts = [
        Examples(torch.rand(size, 1, 28, 28, generator=draw), torch.randint(10, (size,), generator=draw))
        for _ in range(max(clients))
    ]
    network = FlatNetwork(load_registry().build("model", "mlp"), (1, 28, 28), 10, Rng(0))
    cohort, start = Cohort(network, parts), network.flat.clone()
    out, plan = torch.empty(max(clients), network.dim), LocalPlan(lr=0.05, batch_size=20, epochs=1)
    jobs = {n: lambda n=n: cohort.train(start, range(n), plan, Rng(0), out[:n]) for n in clients}
    return _curve("honest training", "n", f"d = {network.dim:,}, {size} images each", jobs, "1", repeats)


def _curve(name: str, grows: str, fixed: str, jobs: dict[int, Job], expected: str, repeats: int) -> Figure:
    """CPU seconds and bytes at the peak, what was there before left out, of the job of each size."""
    times = {size: math.ceil(SHORTEST / max(_once(job), 1e-6)) for size, job in jobs.items()}

    def again(size: int) -> Job:
        return lambda: [jobs[size]() for _ in range(times[size])]

    taken = alternate({str(size): again(size) for size in jobs}, repeats)
    seconds = [taken[str(size)] / times[size] for size in jobs]
    held = [peak_memory(job) for job in jobs.values()]
    return _told(
        {"curve": name, "grows": grows, "fixed": fixed, "values": list(jobs), "seconds": seconds, "bytes": held},
        expected,
    )


def _once(job: Job) -> float:
    job()
    begun = time.process_time()
    job()
    return time.process_time() - begun


def cells(counts: Sequence[int], rounds: int, repeats: int) -> Figure:
    """Suites of ever more small cells on one process: what a cell takes, and how much of it is no training."""
    runs: dict[int, fg.Run] = {}
    seconds = _suites({count: (count, 1) for count in counts}, rounds, repeats, runs)
    line = linregress(counts, seconds)
    inside = fmean(record["cost"]["seconds"] for record in runs[max(counts)].records.values())
    figure = {
        "curve": "a suite",
        "grows": "cells",
        "fixed": f"1 process, {rounds} rounds",
        "values": list(counts),
        "seconds": seconds,
        "bytes": [_workers_memory(runs[count], 1) for count in counts],
        "start": line.intercept,
        "seconds per cell": line.slope,
        "overhead per cell": line.slope - inside,
    }
    _told(figure, "at most 1")
    print(
        f"{'':20} {line.slope:.3f} s per cell, {line.slope - inside:.3f} s of it around it, after {line.intercept:.1f} s"
    )
    return figure


def processes(jobs: Sequence[int], count: int, rounds: int, repeats: int) -> Figure:
    """One suite on ever more processes."""
    runs: dict[int, fg.Run] = {}
    seconds = _suites({number: (count, number) for number in jobs}, rounds, repeats, runs)
    held = [_workers_memory(runs[number], number) for number in jobs]
    fixed = f"{count} cells, {rounds} rounds, {os.cpu_count()} cores"
    figure = {
        "curve": "a suite",
        "grows": "processes",
        "fixed": fixed,
        "values": list(jobs),
        "seconds": seconds,
        "bytes": held,
    }
    return _told(figure, "-1 at best")


def _suites(sizes: dict[int, tuple[int, int]], rounds: int, repeats: int, runs: dict[int, fg.Run]) -> list[float]:
    """Wall seconds of suites with so many cells on so many processes; the last run of each goes into ``runs``."""

    def suite(size: int) -> None:
        count, jobs = sizes[size]
        with tempfile.TemporaryDirectory() as store:
            runs[size] = fg.run(_small(count, rounds), store=Path(store), jobs=jobs)
            runs[size].records  # noqa: B018  read while they are there

    taken = alternate({str(size): lambda size=size: suite(size) for size in sizes}, repeats, time.perf_counter, 0)
    return [taken[str(size)] for size in sizes]


def _small(count: int, rounds: int) -> dict[str, Any]:
    """As many cells, which differ in their step size."""
    return {
        "name": "growth",
        "clients": {"total": 10, "malicious": 2},
        "training": {"rounds": rounds},
        "seeds": 1,
        "matrix": {
            "training.lr": [0.01 + 0.001 * number for number in range(count)],
            "attack": ["none"],
            "defense": ["median"],
        },
    }


def _workers_memory(run: fg.Run, jobs: int) -> int | None:
    """Bytes of all processes, if each held as much as the largest."""
    held = [record["cost"]["worker_peak_memory_bytes"] for record in run.records.values()]
    return None if None in held else jobs * max(held)


def _told(figure: Figure, expected: str) -> Figure:
    """With its exponent; printed on the way."""
    line = linregress([math.log(value) for value in figure["values"]], [math.log(one) for one in figure["seconds"]])
    figure |= {"exponent": line.slope, "error": line.stderr, "expected": expected}
    print(
        f"{figure['curve']:20} {figure['grows']:10} exponent {line.slope:5.2f} +- {line.stderr:.2f}, expected {expected:20}"
        f" {figure['fixed']}",
        flush=True,
    )
    for value, seconds, held in zip(figure["values"], figure["seconds"], figure["bytes"], strict=True):
        print(f"{'':20} {value:10,} {1000 * seconds:10.1f} ms" + ("" if held is None else f" {held / 2**20:8.1f} MiB"))
    return figure


def main() -> None:
    options = arguments(__doc__ or "")
    if options.smoke:
        figures = rules([8, 16, 32], 1000, [1000, 10_000], 10, 1)
        figures += [training([2, 4], 20, 1), cells([2, 4], 2, 1), processes([1, 2], 2, 2, 1)]
    else:
        figures = rules([2**power for power in range(4, 11)], 50_000, [10**power for power in range(4, 8)], 10, 3)
        figures += [training([10, 20, 40, 80, 160, 320], 100, 3), cells([4, 8, 16, 32], 10, 3)]
        figures.append(processes([2**power for power in range(max(2, (os.cpu_count() or 1).bit_length()))], 24, 60, 2))
    keep(options.json, figures)


if __name__ == "__main__":
    main()
