"""Blocks on a page of the dashboard. What does not react is drawn as in reports; charts, tables and choices are Streamlit's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

import streamlit as st

from fedguard.app import address
from fedguard.app.here import PageContext
from fedguard.bench.pages import html
from fedguard.bench.pages.blocks import (
    Block,
    Chart,
    Checks,
    Choice,
    Code,
    Columns,
    Diff,
    Facts,
    Heatmap,
    More,
    Pictures,
    Prose,
    Steps,
    TableBlock,
    Verdict,
    in_cells,
)  # fmt: skip
from fedguard.bench.pages.elements import el, to_bytes
from fedguard.bench.pages.escape import line, markdown
from fedguard.bench.pages.tokens import CONFIG
from fedguard.bench.records.reading import escape_tree

#: For many marks Streamlit would draw on a canvas, which knows no custom properties of CSS, and so no colors
_SVG = {"embedOptions": {"renderer": "svg"}}


class _Place(NamedTuple):
    """The name of the run, for links, and the position of a block on the page."""

    run: str
    key: str


def draw(blocks: Iterable[Block], here: PageContext) -> None:
    """Draw blocks in their order."""
    _draw(blocks, _Place(here.name or "", "block"))


def _draw(blocks: Iterable[Block], place: _Place) -> None:
    """Draw blocks in their order, choices that follow each other in one line."""
    number = 0
    for kind, group in groupby(blocks, type):
        together = list(group)
        columns: Sequence[AbstractContextManager[Any]] = [nullcontext()] * len(together)
        if kind is Choice:
            columns = st.columns(len(together))
        for block, column in zip(together, columns, strict=True):
            with column:
                _RENDER[kind](block, _Place(place.run, f"{place.key}-{number}"))
            number += 1


def _static(block: Block, place: _Place) -> None:
    (drawn,) = html.render_html([block], partial(html.query, place.run))
    st.html(to_bytes(drawn).decode())


def _write(elements: Iterable[Element]) -> None:
    st.html(to_bytes(el("div", *elements, class_="fg")).decode())


def _chart(block: Chart, place: _Place) -> None:
    _write(html.head_of_chart(block))
    for kind, spec in (("wide", block.spec), ("narrow", block.narrow)):
        with st.container(key=f"{kind}-{place.key}"):
            drawn = {"autosize": "pad", **escape_tree(dict(spec)), "config": CONFIG, "usermeta": _SVG}
            key = f"chart-{kind}-{place.key}"
            st.vega_lite_chart(drawn, theme=None, width="content", alt=line(block.alt), key=key)
    if block.note:
        _write([el("p", line(block.note), class_="note")])
    with st.expander("Table"):
        _table(block.table, place)


def _table(block: TableBlock, _: _Place) -> None:
    for tag, text in (("h2", block.title), ("p", block.caption)):
        if text:
            _write([el(tag, line(text))])
    columns: dict[str, list[Any]] = {}
    formats = {}
    for at, column in enumerate(block.columns):
        name, cells = line(column.name), [row[at] for row in block.rows]
        if all(isinstance(cell, float | None) for cell in cells):
            columns[name], formats[name] = cells, st.column_config.NumberColumn(format="%.1f")
        else:
            columns[name] = [in_cells(row)[at] for row in block.rows]
    st.dataframe(columns, hide_index=True, width="stretch", column_config=formats)
    if block.compare:
        _write([el("p", line(f"To compare with: {block.compare}"))])


def _steps(block: Steps, _: _Place) -> None:
    (current, text), names = block.items[block.current], [name for name, _ in block.items]
    titles = {name: line(name) for name in names}
    address.menu(
        markdown(block.title or "Step"),
        names,
        block.key,
        titles=titles.__getitem__,
        chosen=current,
        slider=len(names) > 1,
    )
    _write([el("p", line(text))])


def _choice(block: Choice, _: _Place) -> None:
    titles = {option: line(block.titles.get(option, option)) for option in block.options}
    slider = block.ordered and len(block.options) > 1
    label, show = markdown(block.label), titles.__getitem__
    address.menu(label, block.options, block.key, titles=show, chosen=block.chosen, slider=slider)


def _columns(block: Columns, place: _Place) -> None:
    for number, (one, column) in enumerate(zip(block.blocks, st.columns(len(block.blocks), gap="medium"), strict=True)):
        with column:
            _draw([one], _Place(place.run, f"{place.key}-{number}"))


def _more(block: More, place: _Place) -> None:
    with st.expander(markdown(block.title)):
        _draw(block.blocks, place)


_RENDER: dict[type, Callable[[Any, _Place], None]] = {
    **dict.fromkeys((Verdict, Facts, Prose, Heatmap, Checks, Pictures, Diff, Code), _static),
    Chart: _chart, TableBlock: _table, Steps: _steps, Choice: _choice, Columns: _columns,
    More: _more,
}  # fmt: skip
