"""Blocks in a terminal. A chart is its table with a column of dots and bars; what is folded is the command that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from fedguard.bench.pages.blocks import (
    Action,
    Bar,
    Block,
    Chart,
    Checks,
    Choice,
    Code,
    Columns,
    Diff,
    Facts,
    Field,
    Heatmap,
    More,
    Pictures,
    Prose,
    Steps,
    TableBlock,
    Tone,
    Verdict,
    in_cells,
)  # fmt: skip
from fedguard.bench.pages.escape import line
from fedguard.bench.terminal.parted import split_table

_STYLES: dict[Tone, str] = {"plain": "", "good": "green", "warn": "yellow", "bad": "red"}

#: Characters of the bars' column
_WIDTH = 32


def render_terminal(blocks: Iterable[Block], unfold: bool = False) -> Group:
    """Blocks as something that rich prints.

    Args:
        unfold: show what is folded away, instead of the commands that show it.
    """
    lines: list[RenderableType] = []
    commands: list[str] = []
    for block in blocks:
        if isinstance(block, More) and not unfold:
            commands += [block.command] if block.command and block.command not in commands else []
            continue
        if lines:
            lines.append(Text())
        lines += _RENDER[type(block)](block)
    if commands:
        lines += [Text(), Text(line("More: " + " | ".join(commands)), "dim")]
    return Group(*lines)


def _verdict(block: Verdict) -> Iterator[RenderableType]:
    yield Text(line(block.headline), f"bold {_STYLES[block.tone]}")
    yield from (Text(line(one)) for one in block.lead)
    yield from (Text(line(_say(one)), "green") for one in block.actions if one.command or not one.page)
    yield Text()
    states = Text(" · ").join(Text(line(chip.text), _STYLES[chip.tone] or "dim") for chip in block.chips)
    yield Text(line(block.trained), "dim")
    if block.chips:
        yield states


def _say(action: Action) -> str:
    return f"{action.label} {action.command}".strip()


def _title(title: str) -> Iterator[RenderableType]:
    if title:
        yield Text(line(title), "bold")


def _facts(block: Facts) -> Iterator[RenderableType]:
    yield from _title(block.title)
    grid = Grid.grid(padding=(0, 2))
    for name, lines in block.items:
        grid.add_row(Text(line(name), "dim"), Text(line("; ".join(one.rstrip(".") for one in lines)), "dim"))
    yield grid


def _prose(block: Prose) -> Iterator[RenderableType]:
    yield from _title(block.title)
    yield from (Text(line(one)) for one in block.paragraphs)


def _chart(block: Chart) -> Iterator[RenderableType]:
    yield from _title(block.title)
    yield from _table(block.table)


def _table(block: TableBlock) -> Iterator[RenderableType]:
    yield from _title(block.title)
    yield _Grid(block)


@dataclass(frozen=True)
class _Grid:
    """A table in columns, followed by the bars where there is room; several tables with the same rows if one is too wide."""

    block: TableBlock

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        block, room = self.block, options.max_width
        rows = [
            [Text(line(cell), self._style(number)) for cell in in_cells(row)] for number, row in enumerate(block.rows)
        ]
        heads = [line(one.name) for one in block.columns]
        widths = [max((len(row[at]) for row in rows), default=0) for at in range(len(heads))]
        needed = sum(max(width, 12) + 2 for width in widths) + 2 * bool(block.leading)
        if needed > room and len(heads) > 1:
            yield from split_table(heads, rows, 1, room)
            yield from self._compare()
            return
        bars = block.bars if needed + _WIDTH <= room else ()
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        if block.leading:
            grid.add_column("")
        for column, head, width in zip(block.columns, heads, widths, strict=True):
            grid.add_column(
                Text(head), justify="right" if column.number else "left", overflow="fold", min_width=min(width, room)
            )
        if bars:
            grid.add_column(Text(_ruler(*block.axis)), no_wrap=True)
        for number, cells in enumerate(rows):
            mark = [Text("▌" if number in block.leading else "")] if block.leading else []
            grid.add_row(*mark, *cells, *([Text(_draw(bars[number], *block.axis))] if bars else []))
        yield grid
        legend = ["▌ leading group"] * bool(block.leading) + [line(block.legend)] * bool(bars and block.legend)
        if legend:
            yield Text("   ".join(legend), "dim")
        yield from self._compare()

    def _compare(self) -> Iterator[Text]:
        if self.block.compare:
            yield Text(f"To compare with: {line(self.block.compare)}", "dim")

    def _style(self, row: int) -> str:
        return "bold" if row in self.block.leading else ""


def _ruler(low: float, high: float) -> str:
    """The ends of the axis and its middle."""
    start, middle, end = (f"{one:g}" for one in (low, (low + high) / 2, high))
    return (start.ljust(_WIDTH // 2) + middle).ljust(_WIDTH - len(end)) + end


def _draw(bar: Bar | None, low: float, high: float) -> str:
    """``──●──   ○`` along the axis; the dot covers the ring, and the ring the interval."""
    drawn = [" "] * _WIDTH
    if bar is None:
        return ""

    def at(value: float) -> int:
        return min(_WIDTH - 1, max(0, round((value - low) / (high - low) * (_WIDTH - 1))))

    if bar.low is not None and bar.high is not None:
        drawn[at(bar.low) : at(bar.high) + 1] = "─" * (at(bar.high) - at(bar.low) + 1)
    if bar.ring is not None:
        drawn[at(bar.ring)] = "○"
    drawn[at(bar.dot)] = "●"
    return "".join(drawn)


def _heatmap(block: Heatmap) -> Iterator[RenderableType]:
    yield from _title(block.title)
    yield from (Text(line(block.about), "dim") for _ in range(bool(block.about)))
    for panel in block.panels:
        if panel.title:
            yield Text.assemble("\n", (line(panel.title), "bold"))
        rows = [[Text(line(name)), *map(_field, fields)] for name, fields in panel.rows]
        yield _Split([line(one) for one in (block.corner, *panel.columns)], rows)


def _field(field: Field) -> Text:
    """Green for little, yellow from a sixteenth of the scale, red from a quarter."""
    style = (
        "dim" if field.heat is None else "green" if field.heat < 1 / 16 else "yellow" if field.heat < 1 / 4 else "red"
    )
    return Text(line(f"{field.text} {field.spread}".strip()), style)


@dataclass(frozen=True)
class _Split:
    """A table, or several with the same rows where it is too wide."""

    heads: list[str]
    rows: list[list[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from split_table(self.heads, self.rows, 1, options.max_width)


def _checks(block: Checks) -> Iterator[RenderableType]:
    yield from _title(block.title)
    grid = Grid.grid(padding=(0, 2))
    for one in block.items:
        does = f" {_say(one.action)}" if one.action and one.action.command else ""
        style = _STYLES[one.tone] or "dim"
        about = f"{one.flag or one.title}" + (f" ({one.count})" if one.count else "")
        grid.add_row(*(Text(line(part), style) for part in (about, one.scope, f"{one.text}{does}")))
    yield grid


def _pictures(block: Pictures) -> Iterator[RenderableType]:
    yield from _title(block.title)
    yield from (Text(line(one.caption or one.alt), "dim") for one in block.images)


def _diff(block: Diff) -> Iterator[RenderableType]:
    yield from _title(block.title)
    for key, before, after in block.rows:
        yield Text.assemble(f"{line(key)}: ", (line(before or "-"), "red"), " -> ", (line(after or "-"), "green"))


def _steps(block: Steps) -> Iterator[RenderableType]:
    yield from _title(block.title)
    for number, (name, text) in enumerate(block.items):
        yield Text.assemble(f"{number + 1} ", (line(name), "bold" if number == block.current else ""), f" {line(text)}")


def _choice(block: Choice) -> Iterator[RenderableType]:
    chosen = block.titles.get(block.chosen, block.chosen)
    yield Text(line(f"{block.label}: {chosen}; one of {len(block.options)}: --at {block.key}=..."), "dim")


def _code(block: Code) -> Iterator[RenderableType]:
    yield from _title(block.title)
    yield from (Text(line(one)) for one in block.text.rstrip().split("\n"))


def _columns(block: Columns) -> Iterator[RenderableType]:
    yield render_terminal(block.blocks)


def _more(block: More) -> Iterator[RenderableType]:
    yield Text(line(block.title), "bold")
    yield render_terminal(block.blocks, unfold=True)


_RENDER: dict[type, Callable[[Any], Iterator[RenderableType]]] = {
    Verdict: _verdict, Facts: _facts, Prose: _prose, Chart: _chart, TableBlock: _table, Heatmap: _heatmap, Checks: _checks,
    Pictures: _pictures, Diff: _diff, Steps: _steps, Choice: _choice,
    Code: _code, Columns: _columns, More: _more,
}  # fmt: skip
