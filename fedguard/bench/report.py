"""Tables of a run: attacks by defenses, with intervals, refusals and flags."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fedguard.bench.run import Run
from fedguard.bench.stats import Estimate, estimate
from fedguard.errors import StoreError, UnknownName

#: What the figures are, and whether more is better.
FIGURES = {
    "final_accuracy": ("final accuracy", True),
    "worst_class_accuracy": ("accuracy of the worst class", True),
    "best_accuracy": ("best accuracy of any round (a diagnostic, not a result)", True),
    "accuracy_drop": ("accuracy lost to the attack", False),
    "attack_success": ("backdoor success above that of a clean model", False),
}


@dataclass(frozen=True)
class Entry:
    """One field of a matrix: an estimate, or why there is none."""

    estimate: Estimate | None
    status: str

    def text(self) -> str:
        """``93.1 ±0.8`` in percent, ``93.1`` for one seed, or the status."""
        if self.estimate is None:
            return "-" if self.status == "ok" else self.status
        half = self.estimate.half_width
        return f"{100 * self.estimate.mean:.1f}" + ("" if half is None else f" ±{100 * half:.1f}")


@dataclass(frozen=True)
class Matrix:
    """Attacks (rows) by defenses (columns) for one figure; one block for each combination of the other swept keys."""

    title: str
    figure: str
    defenses: list[str]
    blocks: dict[str, dict[str, dict[str, Entry]]]

    def worst(self, block: str, defense: str) -> Entry | None:
        """The attack in this block that hurts a defense most, by its mean."""
        entries = [row[defense] for attack, row in self.blocks[block].items() if attack != "none"]
        measured = [entry for entry in entries if entry.estimate is not None]
        better = FIGURES[self.figure][1]
        return min(
            measured,
            key=lambda entry: (1 if better else -1) * (entry.estimate.mean if entry.estimate else 0),
            default=None,
        )

    def __str__(self) -> str:
        console = Console(width=200, no_color=True)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.title, "bold")
        for name, rows in self.blocks.items():
            if name:
                yield Text(f"\n{name}", "bold")
            columns = [self._column(rows, defense) for defense in self.defenses]
            room = options.max_width - max(len(attack) for attack in (*rows, _WORST)) - 3
            for part in _fitting([max(len(text) for text in column) + 3 for column in columns], room):
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

    def _column(self, rows: dict[str, dict[str, Entry]], defense: str) -> list[str]:
        """All that stands in a column, its heading line by line."""
        return [*_heading(defense).splitlines(), *(row[defense].text() for row in rows.values())]

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

    def _style(self, entry: Entry, clean: Entry | None) -> str:
        """Green for little lost against the same defense without attack, yellow from 5 points, red from 20."""
        if entry.estimate is None or clean is None or clean.estimate is None or not FIGURES[self.figure][1]:
            return "dim" if entry.estimate is None else ""
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


def _fitting(widths: list[int], room: int) -> Iterator[slice]:
    """Runs of columns whose widths fit the room, one column at least."""
    start = used = 0
    for column, width in enumerate(widths):
        if column > start and used + width > room:
            yield slice(start, column)
            start, used = column, 0
        used += width
    yield slice(start, len(widths))


def matrix(run: Run, figure: str = "final_accuracy") -> Matrix:
    """The matrix of one figure of a run."""
    if figure not in FIGURES:
        raise UnknownName("figure", figure, FIGURES)
    positions: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in run.rows():
        block = ", ".join(f"{key} = {row[key]}" for key in run.swept)
        positions.setdefault((block, row["attack"], row["defense"]), []).append(row)
    defenses = list(dict.fromkeys(defense for _, _, defense in positions))
    blocks: dict[str, dict[str, dict[str, Entry]]] = {}
    for (block, attack, defense), rows in positions.items():
        empty = {name: Entry(None, "") for name in defenses}
        blocks.setdefault(block, {}).setdefault(attack, empty)[defense] = _entry(rows, figure)
    seeds = f"mean of {len(run.seeds)} seeds ± 95 % interval" if len(run.seeds) > 1 else "1 seed, so no interval"
    return Matrix(f"{run.name}: {FIGURES[figure][0]} in %, {seeds}", figure, defenses, blocks)


def _entry(rows: list[dict[str, Any]], figure: str) -> Entry:
    values = [row[figure] for row in rows if row[figure] is not None]
    bad = Counter(row["status"] for row in rows if row["status"] != "ok").most_common(1)
    if bad:  # an average over the seeds that happened to work would be a different figure
        return Entry(None, bad[0][0])
    return Entry(estimate(values), "ok") if values else Entry(None, "ok")


def overview(run: Run) -> RenderableType:
    """All that `fedguard show` says: matrix, backdoors, what was refused or failed, flags, and what to do next."""
    return Group(*_parts(run))


def _parts(run: Run) -> Iterator[RenderableType]:
    yield run.table()
    if any(row["attack_success"] is not None for row in run.rows()):
        backdoors = run.table("attack_success")
        kept = {
            block: {attack: row for attack, row in rows.items() if any(entry.estimate for entry in row.values())}
            for block, rows in backdoors.blocks.items()
        }
        yield Matrix(backdoors.title, backdoors.figure, backdoors.defenses, kept)
    yield from _setting(run)
    yield from _listed(run, "refused", "refused, and why")
    yield from _listed(run, "failed", "failed; `fedguard run SUITE --retry-failed` runs them again")
    missing = len(run.with_status("missing"))
    if missing:
        yield Text(
            f"\n{missing} of {len(run.rows())} trials have not been run: run the suite again to go on.", "yellow"
        )
    yield from _flags(run)


def _setting(run: Run) -> Iterator[RenderableType]:
    """One sentence on the threat and the data, where all cells share it."""
    cards = [record["threat_card"] for record in run.records.values() if record["status"] == "ok"]
    threats = list(dict.fromkeys(card["in_words"] for card in cards if card["attack"]))
    partitions = {card["partition"] for card in cards}
    if len(threats) == 1:
        yield Text(f"\nThreat: {threats[0]}")
    if len(partitions) == 1:
        distance = estimate([card["dissimilarity"]["label_distance"] for card in cards]).mean
        gradient = estimate([card["dissimilarity"]["gradient_dissimilarity"] for card in cards]).mean
        yield Text(
            f"Data: {partitions.pop()}; measured label distance {distance:.2f} (0 alike, 1 disjoint), "
            f"gradient dissimilarity {gradient:.2f}."
        )


def _listed(run: Run, status: str, heading: str) -> Iterator[RenderableType]:
    rows = run.with_status(status)
    if not rows:
        return
    yield Text(f"\n{heading[0].upper()}{heading[1:]}:", "bold")
    for (attack, defense, reason), count in Counter(
        (row["attack"], row["defense"], row["reason"]) for row in rows
    ).items():
        seeds = f" ({count} seeds)" if count > 1 else ""
        yield Text(f"  {attack} against {defense}{seeds}: {reason}")


def _flags(run: Run) -> Iterator[RenderableType]:
    raised: dict[str, list[tuple[str, str]]] = {}
    for record in run.records.values():
        for flag in record["flags"]:
            raised.setdefault(flag["flag"], []).append((record["label"], flag["said"]))
    if raised:
        yield Text("\nRed flags, each with one example:", "bold")
        for flag, cases in sorted(raised.items(), key=lambda item: -len(item[1])):
            label, said = cases[0]
            yield Text(f"  {flag} ({len(cases)} of {len(run.records)} trials): {label}: {said}")


def write_svg(table: Matrix, path: Path) -> None:
    """Write a matrix as a picture.

    Raises:
        StoreError: the file cannot be written.
    """
    widest = max(len(attack) for rows in table.blocks.values() for attack in rows)
    wide = Console(
        record=True, width=max(60, widest + 4 + 14 * len(table.defenses)), file=io.StringIO(), force_terminal=True
    )
    wide.print(table)
    try:
        path.write_text(wide.export_svg(title="FedGuard"), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None
