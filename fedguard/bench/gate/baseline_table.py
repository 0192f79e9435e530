"""A baseline on a terminal."""

from __future__ import annotations

import time

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedguard.bench.gate.baseline import Baseline
from fedguard.bench.gate.pair import select_figures
from fedguard.metrics.figures import FIGURES


def terminal(baseline: Baseline) -> RenderableType:
    """The baseline's run, its watched metrics as means with 95 % intervals, and its history."""
    run = baseline.snapshot
    watching = select_figures(run.gate, {figure for cell in run.cells.values() for figure in cell.values})
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for head in ("cell", "figure", "mean", "95 %", "seeds", "margin"):
        table.add_column(head, justify="left" if head in ("cell", "figure") else "right", overflow="fold")
    for position in run.positions:
        cell = run.cells[position.cell]
        if cell.status != "ok":
            table.add_row(Text(position.words), Text(cell.status))
        for watch in watching:
            values = list(cell.of(watch.figure).values())
            if values:
                known = FIGURES[watch.figure]
                found = known.estimate(values)
                half = known.interval(found)
                bound = ">" if found.censored else ""
                fields = (known.title, f"{bound}{known.quantity(found.mean)}", half, str(found.seeds))
                table.add_row(
                    Text(position.words), *map(Text, (*fields, FIGURES[watch.figure].difference(watch.margin)))
                )
    head = (
        f"{run.suite}, FedGuard {run.fedguard} ({run.commit or 'unknown commit'}), {_date(baseline.created)}; "
        f"{len(run.seeds)} seed{'s' * (len(run.seeds) > 1)}, {len(baseline.confirmation)} more to confirm drops"
    )
    history = [
        Text(
            "\n".join(
                [
                    f"{_date(one.time)} ({one.commit or 'unknown commit'}): {one.reason}",
                    *(f"  {line}" for line in one.changes),
                ]
            )
        )
        for one in baseline.history
    ]
    return Group(Text(head, "bold"), table, *history)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
