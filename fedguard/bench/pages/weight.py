"""Breakdown in weight as a table: for each rule the lightest sites that break it, and how far each site moves it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedguard.bench.pages.blocks import Block, Heading, TableBlock
from fedguard.bench.results.in_weight import weight_breakdowns
from fedguard.bench.results.run import Run

#: Profiles of weights that are shown; where each seed deals other sizes there are many
_PROFILES = 3


def weight_tables(run: Run) -> Iterator[Block]:
    """A table for each profile of weights in the run; nothing if the suite did not ask for it."""
    profiles: dict[tuple[float, ...], list[Mapping[str, Any]]] = {}
    for row in weight_breakdowns(run):
        profiles.setdefault(tuple(round(share, 3) for share in row["shares"]), []).append(row)
    for number, rows in enumerate(profiles.values()):
        if number < _PROFILES:
            yield _table(rows, len(profiles) - _PROFILES if number == _PROFILES - 1 else 0)


def _table(rows: list[Mapping[str, Any]], others: int) -> TableBlock:
    shares = rows[0]["shares"]
    sites = [Heading(f"site {site + 1}, {100 * share:.1f} %", True) for site, share in enumerate(shares)]
    more = f" {others} other profiles of weights are in the records." if others > 0 else ""
    return TableBlock(
        (Heading("defense"), Heading("f", True), Heading("least weight, %", True), Heading("of"), *sites),
        [[row["defense"], row["f"], *_least(row), *map(_pull, row["pull"])] for row in rows],
        "Least weight: the share of the lightest sites that together move the aggregate without bound. Site columns: how far "
        "one site moves it alone, in lengths of the longest honest update. Searched for, so the true weight is no larger and "
        "the true distance no smaller; f is what the rule assumes." + more,
        "Breakdown in weight",
    )


def _least(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["least"] is None:
        return "-", "none found"
    return f"{100 * row['least']:.1f}", ", ".join(row["sites"])


def _pull(pull: float | None) -> str:
    return "no bound" if pull is None else f"{pull:.2f}"
