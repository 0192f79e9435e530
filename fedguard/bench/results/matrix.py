"""Attacks by defenses: the matrix of one metric, for the terminal and for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from fedguard.bench.results.places import setting
from fedguard.bench.terminal.parted import fitting
from fedguard.metrics.figures import FIGURES, Metric, metric_name
from fedguard.metrics.stats import Estimate, over_seeds


@dataclass(frozen=True)
class MatrixEntry:
    """One field of a matrix: an estimate, or why there is none."""

    estimate: Estimate | None
    status: str
    figure: Metric = FIGURES["final_accuracy"]

    def text(self) -> str:
        """``93.1 [92.3, 93.8]`` in the figure's unit, ``93.1`` for too few seeds, or the status."""
        if self.estimate is None:
            return "-" if self.status == "ok" else self.status
        return self.figure.format_estimate(self.estimate)


@dataclass(frozen=True)
class Matrix:
    """Attacks (rows) by defenses (columns) for one metric; one block for each combination of the other swept keys."""

    title: str
    figure: str
    defenses: list[str]
    blocks: dict[str, dict[str, dict[str, MatrixEntry]]]

    def worst(self, block: str, defense: str) -> MatrixEntry | None:
        """The attack in this block that hurts a defense most: by the number of censored seeds, then by its mean."""
        entries = [row[defense] for attack, row in self.blocks[block].items() if attack != "none"]
        sign = -1 if FIGURES[self.figure].more_is_better else 1
        measured = [(one.estimate.censored, sign * one.estimate.mean, one) for one in entries if one.estimate]
        return max(measured, key=lambda one: one[:2])[-1] if measured else None

    def __str__(self) -> str:
        console = Console(width=self.width, no_color=True)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    @property
    def width(self) -> int:
        """Terminal width, in columns, that fits every block in one piece."""
        return max(
            len(self.title), *(self._label_width(rows) + sum(self._widths(rows)) for rows in self.blocks.values())
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.title, "bold")
        for name, rows in self.blocks.items():
            if name:
                yield Text(f"\n{name}", "bold")
            for part in fitting(self._widths(rows), options.max_width - self._label_width(rows)):
                yield self._block(name, self.defenses[part])

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{escape(defense)}</th>" for defense in self.defenses)
        parts = [f"<p>{escape(self.title)}</p>"]
        for name, rows in self.blocks.items():
            body = "".join(
                f"<tr><th>{escape(attack)}</th>"
                + "".join(f"<td>{escape(row[defense].text())}</td>" for defense in self.defenses)
                + "</tr>"
                for attack, row in rows.items()
            )
            parts.append(f"<table><caption>{escape(name)}</caption><tr><th></th>{heads}</tr>{body}</table>")
        return "".join(parts)

    def _label_width(self, rows: dict[str, dict[str, MatrixEntry]]) -> int:
        """What the attacks' names take, with the table's edges."""
        return max(len(attack) for attack in (*rows, _WORST)) + 3

    def _widths(self, rows: dict[str, dict[str, MatrixEntry]]) -> list[int]:
        """What each defense's column takes, with the space between columns."""
        columns = [[*_heading(one).splitlines(), *(row[one].text() for row in rows.values())] for one in self.defenses]
        return [max(len(text) for text in column) + 3 for column in columns]

    def _block(self, name: str, defenses: list[str]) -> Table:
        """One block, with those defenses that fit beside each other."""
        rows = self.blocks[name]
        table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("attack", no_wrap=True)
        for defense in defenses:
            table.add_column(_heading(defense), justify="right", no_wrap=True, vertical="bottom")
        clean = rows.get("none", {})
        for attack, row in rows.items():
            table.add_row(attack, *(Text(row[d].text(), self._style(row[d], clean.get(d))) for d in defenses))
        if len(rows) - bool(clean) > 1:
            worst = [(d, self.worst(name, d)) for d in defenses]
            table.add_section()
            table.add_row(
                Text(_WORST, "bold"),
                *(Text(w.text(), self._style(w, clean.get(d))) if w else Text("-") for d, w in worst),
            )
        return table

    def _style(self, entry: MatrixEntry, clean: MatrixEntry | None) -> str:
        """Green for little lost (against the same defense without attack), yellow from 5 points, red from 20."""
        if entry.estimate is None:
            return "dim"
        if FIGURES[self.figure].unit != "%":
            return ""
        if not FIGURES[self.figure].more_is_better:
            lost = entry.estimate.mean
        elif clean is None or clean.estimate is None:
            return ""
        else:
            lost = clean.estimate.mean - entry.estimate.mean
        return "green" if lost < 0.05 else "yellow" if lost < 0.2 else "red"


_WORST = "worst of these"


def _heading(defense: str) -> str:
    """A defense's name broken into short lines."""
    lines: list[str] = []
    for stage in defense.split(" >> "):
        start = ">> " if lines else ""
        for word in stage.replace("_", "_\n").replace("(", "\n(").splitlines():
            if not start and lines and len(lines[-1]) + len(word) <= 12 and not lines[-1].startswith(">> "):
                lines[-1] += word
            else:
                lines.append(start + word)
            start = ""
    return "\n".join(lines)


def matrix(name: str, rows: Sequence[Mapping[str, Any]], swept: Sequence[str], figure: str) -> Matrix:
    """The matrix of one figure.

    Args:
        name: of the run, for the title.
        rows: as `Run.rows` gives them.
        swept: the keys swept beside attack and defense; each combination of their values is a block.
        figure: a key of `FIGURES`.
    """
    figure = metric_name(figure)
    known = FIGURES[figure]
    positions: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    rows = [row for row in rows if known.fits(row["goal"])]
    for row in rows:
        block = setting(row, swept)
        positions.setdefault((block, row["attack"], row["defense"]), []).append(row)
    defenses = list(dict.fromkeys(defense for _, _, defense in positions))
    blocks: dict[str, dict[str, dict[str, MatrixEntry]]] = {}
    for (block, attack, defense), found in positions.items():
        empty = {one: MatrixEntry(None, "") for one in defenses}
        blocks.setdefault(block, {}).setdefault(attack, empty)[defense] = _entry(found, figure)
    seeds = len({row["seed"] for row in rows})
    return Matrix(f"{name}: {known.heading}, {over_seeds(seeds)}", figure, defenses, blocks)


def _entry(rows: Sequence[Mapping[str, Any]], figure: str) -> MatrixEntry:
    values = [row[figure] for row in rows if row[figure] is not None]
    bad = Counter(row["status"] for row in rows if row["status"] != "ok").most_common(1)
    if bad:  # an average over the seeds that happened to work would be a different figure
        return MatrixEntry(None, bad[0][0])
    return MatrixEntry(FIGURES[figure].estimate(values), "ok", FIGURES[figure]) if values else MatrixEntry(None, "ok")
