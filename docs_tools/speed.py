"""The page on speed: goals beside measurements, and charts, from the files in `benchmarks/measured/`.

`python -m docs_tools.speed FOLDER PAGE` writes the page of other files.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docs_tools.charts import figures
from docs_tools.goals import COMMANDS, GOALS, Goal, Measured, read
from docs_tools.markup import code, inline, page, table
from fedguard.errors import InputError

MEASURED = Path(__file__).parents[1] / "benchmarks" / "measured"
log = logging.getLogger("mkdocs.plugins.fedguard")

_FIRST = """Each goal beside what was measured, from the files in `benchmarks/measured/`, which `make bench` writes anew.
Times are CPU time, jobs alternate in one process, and figures are medians.
[What each script measures](../benchmarks/README.md)."""

#: Further contents of a file: title, description, and key -> heading of the columns.
_FURTHER: dict[str, tuple[str, str, dict[str, str]]] = {
    "simulation": (
        "All sizes of a cohort",
        "Client updates per second of CPU beside those of the plain loop, one thread.",
        {
            "model": "model",
            "clients": "clients",
            "images": "images of each",
            "cohort": "cohort",
            "plain loop": "plain loop",
            "ratio": "ratio",
            "wall ratio": "by the clock",
            "share of sgemm": "share of sgemm",
        },
    ),
    "peers": (
        "All that trained the same round",
        'Client updates per second by the clock, and per second of CPU; "one" is with one thread.',
        {
            "model": "model",
            "system": "",
            "cores": "cores",
            "updates_per_second": "updates per s",
            "slower": "times slower than FedGuard",
            "updates_per_cpu_second": "per s of CPU",
            "slower_cpu": "times slower",
        },
    ),
    "rules": (
        "All rules",
        "Passes by the core, and by `fedguard.aggregate`, which also looks for NaN.",
        {"defense": "rule", "n": "n", "d": "d", "passes": "passes", "front_door": "fedguard.aggregate", "seconds": "seconds"},
    ),
    "probes": (
        "All probes",
        "20 probes in aggregations by the same rule.",
        {"defense": "rule", "n": "n", "d": "d", "ratio": "aggregations", "seconds": "seconds"},
    ),
    "inversion": (
        "Restarts",
        "Ten restarts of a gradient inversion side by side, in units of one.",
        {"network": "network", "attack": "attack", "ratio": "ten restarts", "seconds": "seconds of one"},
    ),
    "dashboard": (
        "The dashboard",
        "Seconds until a page is drawn in a new process, and the longest of some reruns.",
        {"page": "page", "records": "records", "first, s": "first", "again, s": "again"},
    ),
}  # fmt: skip


def pages() -> dict[str, str]:
    """``speed.md``; a file that cannot be read is a warning, which fails a strict build."""
    try:
        return {"speed.md": written(read(MEASURED))}
    except InputError as error:
        log.warning("%s", error)
        return {"speed.md": page("Speed", "The figures cannot be read.")}


def written(files: Measured) -> str:
    """The page in Markdown."""
    goals = [part for title, (says, of_work) in GOALS.items() for part in _goals(title, says, of_work, files)]
    return page(
        "Speed",
        _FIRST,
        _count(files),
        *goals,
        "## Growth",
        *_growth(files),
        "## Pictures" if (drawn := figures(files)) else "",
        *drawn,
        *_further(files),
        "## Where",
        _where(files),
    )


def _count(files: Measured) -> str:
    verdicts = [goal.verdict(files) for _, goals in GOALS.values() for goal in goals]
    said = [f"{verdicts.count(one)} {one}" for one in ("met", "missed", "not measured") if one in verdicts]
    return f"**Of {len(verdicts)} goals: {', '.join(said)}.**"


def _goals(title: str, says: str, goals: list[Goal], files: Measured) -> Iterable[str]:
    rows, reasons = [], []
    for goal in goals:
        value, verdict = goal.measured(files), goal.verdict(files)
        limit = "at most" if goal.at_most else "at least"
        rows.append([
            inline(goal.what),
            f"{limit} {inline(goal.said(goal.goal))}",
            "" if value is None else inline(goal.said(value)),
            f"<strong>{verdict}</strong>" if verdict == "missed" else verdict,
            code(COMMANDS[goal.file]),
        ])  # fmt: skip
        if verdict == "missed" and goal.why:
            reasons.append(f"- Missed, {goal.what}: {goal.why}")
    yield f"## {title}"
    yield says
    yield table(["", "goal", "measured", "", "command that repeats it"], rows)
    yield "\n".join(reasons)


def _growth(files: Measured) -> Iterable[str]:
    """The exponents, and the cost of the largest size."""
    curves = files.get("growth", {}).get("figures", [])
    yield (
        "Seconds grow by a power of the size: 1 means that twice the size takes twice as long. The exponent is that of a "
        "straight line through the logarithms, with the fixed costs, and so often smaller than what is expected of large sizes."
    )
    if not curves:
        yield "Not measured."
        return
    rows = (
        [
            inline(curve["curve"]),
            inline(curve["grows"]),
            inline(curve["fixed"]),
            f"{curve['exponent']:.2f} ± {curve['error']:.2f}",
            inline(curve["expected"]),
            f"{curve['values'][-1]:,}: {curve['seconds'][-1]:.3g} s" + _held(curve["bytes"][-1]),
        ]
        for curve in curves
    )
    yield table(["", "grows", "fixed", "exponent", "expected", "the largest"], rows)
    for curve in curves:
        if "overhead per cell" in curve:
            yield (
                f"A small cell takes {curve['seconds per cell']:.3g} s, of which {curve['overhead per cell']:.2g} s are not "
                f"spent in the cell itself; a suite takes {curve['start']:.2g} s besides."
            )


def _held(held: int | None) -> str:
    return "" if held is None else f", {held / 2**20:,.0f} MiB"


def _further(files: Measured) -> Iterable[str]:
    for name, (title, says, columns) in _FURTHER.items():
        rows = [row for row in files.get(name, {}).get("figures", []) if next(iter(columns)) in row]
        if rows:
            yield f"## {title}"
            yield f"{says} `{COMMANDS[name]}`"
            yield table(list(columns.values()), ([_cell(row.get(key)) for key in columns] for row in rows))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else inline(str(value))


def _where(files: Measured) -> str:
    """The conditions under which each file was measured."""
    rows = (
        [
            code(f"{name}.json"),
            inline(f"{told.get('processor', '')}, {told.get('cores', '?')} cores"),
            str(told.get("threads", "")),
            inline(str(told.get("torch", ""))),
            " to ".join(f"{one:.1f}" for one in told.get("load") or ()),
        ]
        for name, told in files.items()
    )
    return (
        table(["", "processor", "threads", "torch", "load average, from start to end"], rows)
        if files
        else "Nowhere yet."
    )


if __name__ == "__main__":
    folder, target = map(Path, sys.argv[1:3])
    try:
        target.write_text(written(read(folder)))
    except InputError as error:
        sys.exit(str(error))
