"""CPU time and memory, alternating: what the benchmarks share."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from threadpoolctl import threadpool_limits

#: How many processes wanted a core in the last minute, before this script was one of them; None where nobody counts.
_LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def alternate(
    jobs: dict[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
    warm_ups: int = 1,
) -> dict[str, float]:
    """The median seconds of each job, of CPU unless told, run in turn ``repeats`` times after the warm-ups."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(-warm_ups, repeats):
        for name, job in jobs.items():
            begun = clock()
            job()
            if repeat >= 0:
                seconds[name].append(clock() - begun)
    return {name: median(values) for name, values in seconds.items()}


def peak_memory(job: Callable[[], object]) -> int | None:
    """Bytes that a job holds at its peak beyond what is held before it; None where the system cannot tell (not Linux)."""
    forget = Path("/proc/self/clear_refs")
    if not forget.exists():
        return None
    getattr(ctypes.CDLL(None), "malloc_trim", abs)(0)  # what was freed would be used again, and not be seen
    forget.write_text("5")  # the peak so far
    before = _peak()
    job()
    return _peak() - before


def _peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1]) if found else 0


def arguments(description: str, **further: str) -> argparse.Namespace:
    """``--smoke`` for small sizes, ``--json FILE`` to keep the figures; sets one torch thread, or ``--threads``.

    Args:
        further: options of one script, each with its help; None where they are not given.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--smoke", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of all that is measured")
    for name, explained in further.items():
        parser.add_argument(f"--{name}", help=explained)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    threadpool_limits(options.threads)  # numpy has a pool of its own
    return options


def keep(path: Path | None, figures: list[dict[str, Any]]) -> None:
    """Write the figures as JSON, if a path is given, with what they depend on: versions, threads, processor, load.

    The load is the average of the last minute, when the script began and now. No date, so that a file changes only where a
    figure does; four digits, since no figure has more.
    """
    if path is None:
        return
    told = {
        "script": Path(sys.argv[0]).name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": None if _LOAD is None else [_LOAD, os.getloadavg()[0]],
        "figures": figures,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_short(told), indent=1) + "\n")


def processor() -> str:
    """What the processor calls itself."""
    told = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", told.read_text()) if told.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
