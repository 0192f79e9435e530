"""Blocks as GitHub's Markdown: the renderer of job summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fedguard.bench.pages.blocks import (
    Action,
    Block,
    Chart,
    CheckItem,
    Checks,
    Choice,
    Code,
    Columns,
    Diff,
    Facts,
    Heading,
    Heatmap,
    More,
    Pictures,
    Prose,
    Steps,
    TableBlock,
    Verdict,
    in_cells,
)  # fmt: skip
from fedguard.bench.pages.escape import code, line, markdown


def render_markdown(blocks: Iterable[Block]) -> str:
    """Blocks as paragraphs."""
    return "\n\n".join(part for block in blocks for part in _RENDER[type(block)](block)) + "\n"


def _verdict(block: Verdict) -> Iterator[str]:
    yield f"## {markdown(block.headline)}"
    if block.lead:
        yield markdown(" ".join(block.lead))
    yield from (_action(one) for one in block.actions if one.command or not one.page)
    yield " · ".join(markdown(one) for one in (block.trained, *(chip.text for chip in block.chips)) if one)


def _action(action: Action) -> str:
    return markdown(action.label) + (f" {code(action.command)}" if action.command else "")


def _title(title: str) -> Iterator[str]:
    if title:
        yield f"### {markdown(title)}"


def _facts(block: Facts) -> Iterator[str]:
    yield from _title(block.title)
    yield " · ".join(f"{markdown(name)}: {markdown(', '.join(lines))}" for name, lines in block.items)


def _prose(block: Prose) -> Iterator[str]:
    yield from _title(block.title)
    yield from map(markdown, block.paragraphs)


def _chart(block: Chart) -> Iterator[str]:
    yield from _title(block.title)
    yield from _table(block.table)
    if block.note:
        yield markdown(block.note)


def _table(block: TableBlock) -> Iterator[str]:
    yield from _title(block.title)
    if block.caption:
        yield markdown(block.caption)
    bold = [[f"**{cell}**" if cell and number in block.leading else cell for cell in map(markdown, in_cells(row))]
            for number, row in enumerate(block.rows)]  # fmt: skip
    lines = [
        [markdown(one.name) for one in block.columns],
        ["---:" if one.number else "---" for one in block.columns],
        *bold,
    ]
    yield "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    if block.compare:
        yield f"To compare with: {markdown(block.compare)}"


def _heatmap(block: Heatmap) -> Iterator[str]:
    yield from _title(block.title)
    yield from (markdown(one) for one in (block.about,) if one)
    for panel in block.panels:
        columns = [Heading(block.corner), *(Heading(name, number=True) for name in panel.columns)]
        rows = [[name, *(f"{one.text} {one.spread}".strip() for one in fields)] for name, fields in panel.rows]
        yield from _table(TableBlock(columns, rows, panel.title))


def _checks(block: Checks) -> Iterator[str]:
    yield from _title(block.title)
    if block.items:
        yield "\n".join(map(_check, block.items))


def _check(check: CheckItem) -> str:
    about = " · ".join(markdown(part) for part in (check.scope, check.flag, check.count) if part)
    does = f" {_action(check.action)}" if check.action and check.action.command else ""
    return f"- **{markdown(check.title)}** {markdown(check.text)} ({about}){does}"


def _pictures(block: Pictures) -> Iterator[str]:
    yield from _title(block.title)
    yield from (markdown(one.caption or one.alt) for one in block.images)


def _diff(block: Diff) -> Iterator[str]:
    yield from _title(block.title)
    if block.rows:
        yield "\n".join(
            f"- {code(key)}: {markdown(old or '-')} → {markdown(new or '-')}" for key, old, new in block.rows
        )


def _steps(block: Steps) -> Iterator[str]:
    yield from _title(block.title)
    yield "\n".join(
        f"{number}. **{markdown(name)}** {markdown(text)}" for number, (name, text) in enumerate(block.items, 1)
    )


def _choice(block: Choice) -> Iterator[str]:
    yield f"{markdown(block.label)}: {markdown(block.titles.get(block.chosen, block.chosen))}"


def _code(block: Code) -> Iterator[str]:
    yield from _title(block.title)
    yield "\n".join(f"    {line(one)}" for one in block.text.rstrip().split("\n"))  # indented, whatever ticks it holds


def _columns(block: Columns) -> Iterator[str]:
    yield render_markdown(block.blocks).rstrip()


def _more(block: More) -> Iterator[str]:
    yield f"<details><summary>{markdown(block.title)}</summary>"
    yield render_markdown(block.blocks).rstrip()
    yield "</details>"


_RENDER: dict[type, Callable[[Any], Iterator[str]]] = {
    Verdict: _verdict, Facts: _facts, Prose: _prose, Chart: _chart, TableBlock: _table, Heatmap: _heatmap, Checks: _checks,
    Pictures: _pictures, Diff: _diff, Steps: _steps, Choice: _choice,
    Code: _code, Columns: _columns, More: _more,
}  # fmt: skip
