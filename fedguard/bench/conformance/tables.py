"""Comparisons as a table, on a terminal and in a document."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from rich.table import Table

from fedguard.bench.conformance.conform import Conformance

COLUMNS = ("architecture", "engine", "attack", "simulated", "real", "difference", "bits", "seconds")


def table(found: Sequence[Conformance]) -> Table:
    """A table for a terminal of 80 columns; the title names the engine, which all rows share."""
    shown = Table(box=None, header_style="bold", pad_edge=False, title=found[0].engine, title_justify="left")
    said = [column != "engine" for column in COLUMNS]
    for column in compress(COLUMNS, said):
        shown.add_column(column, overflow="fold", no_wrap=column != "architecture")
    for row in rows(found):
        shown.add_row(*compress(row, said))
    return shown


def as_markdown(found: Sequence[Conformance]) -> str:
    """For a document."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *rows(found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows(found: Sequence[Conformance]) -> list[tuple[str, ...]]:
    """Accuracies in percent, the difference over the way moved, and the seconds of both sides."""
    return [
        (
            one.architecture,
            one.engine,
            one.attack,
            f"{100 * one.simulated.accuracy:.1f} %",
            f"{100 * one.real.accuracy:.1f} %",
            f"{one.difference:.0e}" if one.passed else f"differ: {one.difference:.0e}",
            "the same" if one.same_bits else "others",
            f"{one.simulated.seconds:.1f} / {one.real.seconds:.1f}",
        )
        for one in found
    ]
