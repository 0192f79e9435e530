"""CPU time, alternating: what the benchmarks share."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from threadpoolctl import threadpool_limits


def alternate(
    jobs: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """The median seconds of each job, of CPU unless told, run in turn ``repeats`` times after one warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(repeats + 1):
        for name, job in jobs.items():
            begun = clock()
            job()
            if repeat:
                seconds[name].append(clock() - begun)
    return {name: median(values) for name, values in seconds.items()}


def arguments(description: str) -> argparse.Namespace:
    """``--smoke`` for small sizes, ``--json FILE`` to keep the figures; sets one torch thread, or ``--threads``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--smoke", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of all that is measured")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    threadpool_limits(options.threads)  # numpy has a pool of its own
    return options


def keep(path: Path | None, figures: list[dict[str, Any]]) -> None:
    """Write the figures as JSON, if a path is given."""
    if path is not None:
        path.write_text(
            json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "figures": figures}, indent=1)
        )
