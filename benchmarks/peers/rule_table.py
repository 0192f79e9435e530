"""Robust rules beside ByzFL's, in passes over memory."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from program import HERE, Program
from threadpoolctl import threadpool_limits
from torch import Tensor

import fedguard as fg

#: Our name of a rule -> its parameters that make it ByzFL's.
RULES: dict[str, dict[str, float]] = {
    "median": {},
    "trimmed_mean": {},
    "krum": {},
    "geometric_median": {"steps": 3, "nu": 0.1},
    "nnm >> trimmed_mean": {},
    "centered_clipping": {"steps": 1, "tau": 100.0},
}


def compare_rules(python: str | None, n: int, d: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each rule: CPU time on one thread in passes, one pass being ``updates.mean(0)``; with ByzFL's, if there."""
    torch.set_num_threads(1)
    threadpool_limits(1)
    updates = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    jobs: dict[str, Callable[[], Tensor]] = {
        rule: lambda rule=rule, given=given: fg.aggregate(rule, updates, f=n // 5, **given)
        for rule, given in RULES.items()
    }
    taken: dict[str, list[float]] = {}
    differences: dict[str, float] = {}

    def timed(name: str, job: Callable[[], Tensor]) -> Tensor:
        begun = time.process_time()
        result = job()
        taken.setdefault(name, []).append(time.process_time() - begun)
        return result

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result"
        command = [str(python), str(HERE / "byzfl_rules.py"), *map(str, (n, d, n // 5))]
        byzfl = Program("ByzFL", command, Path(folder)) if python else None
        for repeat in range(repeats + 1):
            for rule, job in jobs.items():
                timed("one pass", lambda: updates.mean(0))
                own = timed(rule, job)
                if byzfl is not None:
                    seconds = json.loads(byzfl.ask([rule, str(file)][: 1 if repeat else 2]))
                    taken.setdefault(f"ByzFL, {rule}", []).append(seconds)
                    if not repeat:
                        theirs = torch.load(file)
                        differences[rule] = float((own - theirs).norm() / theirs.norm())
        if byzfl is not None:
            byzfl.close()
    middle = {name: median(values[1:]) for name, values in taken.items()}
    return [_row(rule, middle, differences.get(rule)) | {"n": n, "d": d} for rule in RULES]


def _row(rule: str, seconds: dict[str, float], difference: float | None) -> dict[str, Any]:
    row = {"rule": rule, "passes": seconds[rule] / seconds["one pass"]}
    if difference is None:
        return row
    theirs = seconds[f"ByzFL, {rule}"]
    return row | {"byzfl": theirs / seconds["one pass"], "slower": theirs / seconds[rule], "difference": difference}


def show_rules(rows: list[dict[str, Any]]) -> None:
    print(f"\nrules in passes over memory, n = {rows[0]['n']}, d = {rows[0]['d']:,}, one thread")
    for row in rows:
        beside = ""
        if "byzfl" in row:
            beside = (
                f"  ByzFL {row['byzfl']:6.1f}  slower {row['slower']:6.1f}   results differ by {row['difference']:.0e}"
            )
        print(f"{row['rule']:22} FedGuard {row['passes']:6.1f}{beside}")
