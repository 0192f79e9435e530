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


def alternate(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median CPU seconds of each job, run in turn ``repeats`` times after one warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(repeats + 1):
        for name, job in jobs.items():
            begun = time.process_time()
            job()
            if repeat:
                seconds[name].append(time.process_time() - begun)
    return {name: median(values) for name, values in seconds.items()}


def arguments(description: str) -> argparse.Namespace:
    """``--smoke`` for small sizes, ``--json FILE`` to keep the figures; sets one torch thread."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--smoke", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def keep(path: Path | None, figures: list[dict[str, Any]]) -> None:
    """Write the figures as JSON, if a path is given."""
    if path is not None:
        path.write_text(json.dumps({"torch": torch.__version__, "threads": 1, "figures": figures}, indent=1))
