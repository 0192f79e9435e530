"""The metrics of a suite from run to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedguard.bench.gate.verdict import CANNOT_JUDGE, PASSED, REGRESSED, GateVerdict
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, Metric
from fedguard.metrics.stats import Estimate

#: Verdict of a gate by its exit code
SAID = {PASSED: "passed", REGRESSED: "regressed", CANNOT_JUDGE: "cannot judge"}


def points(runs: Sequence[tuple[Run, Sequence[GateVerdict]]], figure: str) -> list[dict[str, Any]]:
    """For each run, the mean over its cells and the worst of them, in the form for `charts.gate.trend`."""
    found = []
    first: dict[frozenset[str], str] = {}
    for run, verdicts in runs:
        same = first.setdefault(frozenset(position["cell"] for position in run.manifest["positions"]), run.name)
        cells = _cells(run.rows(), figure)
        for what, value in (
            ("mean over cells", _mean(cells, FIGURES[figure])),
            ("worst cell", _worst(cells, figure)),
        ):
            if value is not None:
                found.append(
                    {
                        "time": float(run.manifest.get("started", run.manifest.get("created", 0.0))),
                        "run": run.name,
                        "commit": commit_of(run),
                        "what": what,
                        **_scale_estimate(value, figure),
                        "cells": len(cells),
                        "cells as in": same,
                        "verdict": SAID[verdicts[-1].exit_code] if verdicts else "not judged",
                    }
                )
    return found


def commit_of(run: Run) -> str:
    """The commit of the code that made the records; several, if it changed during the run."""
    commits = {record["environment"].get("git_commit") for record in run.records.values()}
    return ", ".join(sorted(str(one) for one in commits if one))


def _cells(rows: Sequence[Mapping[str, Any]], figure: str) -> list[list[float]]:
    """For each cell with the metric on every seed, its values in the order of the seeds."""
    found: dict[str, dict[int, float | None]] = {}
    for row in rows:
        found.setdefault(row["cell"], {})[row["seed"]] = row[figure] if row["status"] == "ok" else None
    return [
        [value for value in seeds.values() if value is not None]
        for seeds in found.values()
        if all(value is not None for value in seeds.values())
    ]


def _mean(cells: Sequence[Sequence[float]], known: Metric) -> Estimate | None:
    """The estimate over seeds of the mean over cells."""
    return known.estimate([sum(seed) / len(seed) for seed in zip(*cells, strict=True)]) if cells else None


def _worst(cells: Sequence[Sequence[float]], figure: str) -> Estimate | None:
    if not cells:
        return None
    known = FIGURES[figure]
    sign = 1 if known.more_is_better else -1
    return min((known.estimate(values) for values in cells), key=lambda one: sign * one.mean)


def _scale_estimate(value: Estimate, figure: str) -> dict[str, float]:
    ends = {"low": value.low, "high": value.high}
    scale = FIGURES[figure].scale
    return {"mean": scale * value.mean} | {
        name: scale * (value.mean if end is None else end) for name, end in ends.items()
    }
