"""What a trial costs in a Ray cluster beside processes of this machine: the time between trials, and how it scales.

    python benchmarks/cluster.py                   small cells, one worker and two

Seconds on the wall, from the first record to the last, so that no start counts. ``outside`` is what of them one worker spends
per trial outside of the trial itself: hand-over and store. It needs Ray: pip install 'fedguard[ray]'.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from measure import arguments, keep

import fedguard as fg
from fedguard.bench.running.progress import Listener


class Clock(Listener):
    """Notes when each record was stored, and how long its trial took."""

    def __init__(self) -> None:
        self.ended_at: list[float] = []
        self.seconds: list[float] = []

    def note_record(self, record: Any) -> None:
        self.ended_at.append(time.perf_counter())
        self.seconds.append(record["cost"]["seconds"])


def measured(engine: fg.Ray | None, workers: int, cells: int, rounds: int) -> dict[str, Any]:
    """One suite of so many cells."""
    clock = Clock()
    suite = {
        "name": "cluster",
        "clients": {"total": 10, "malicious": 2},
        "training": {"rounds": rounds},
        "seeds": 1,
        "matrix": {
            "attack": ["none", *({"name": "gaussian", "scale": 1 + k} for k in range(cells - 1))],
            "defense": ["mean"],
        },
    }
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as store:
        fg.run(suite, store=store, jobs=workers, engine=engine, listener=clock)
    trials, wall = len(clock.seconds) - workers, clock.ended_at[-1] - clock.ended_at[workers - 1]
    inside = sum(clock.seconds[workers:])
    return {
        "engine": "local" if engine is None else "ray",
        "workers": workers,
        "trials": trials,
        "first record": clock.ended_at[0] - began,
        "trials per second": trials / wall,
        "outside": 1000 * (wall * workers - inside) / trials,
    }


def main() -> None:
    options = arguments(__doc__ or "")
    os.environ["OMP_NUM_THREADS"] = "1"
    cells, rounds = (6, 1) if options.smoke else (60, 10)
    figures = [measured(engine, workers, cells, rounds) for workers in (1, 2) for engine in (None, fg.Ray())]
    for one in figures:
        print(
            f"{one['engine']:6} {one['workers']} workers: first record after {one['first record']:5.1f} s, then "
            f"{one['trials per second']:5.2f} trials per second, {one['outside']:5.0f} ms per trial outside of it"
        )
    keep(options.json, figures)


if __name__ == "__main__":
    main()
