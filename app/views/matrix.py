"""Every attack against every defense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import streamlit as st

from fedguard.app import address, data, words
from fedguard.app.charts.heatmap import heatmap, least_width
from fedguard.app.figure import figure_menu
from fedguard.app.here import PageContext
from fedguard.app.style import sideways
from fedguard.bench.results.matrix import Matrix
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import over_seeds

#: More heat maps than this are not drawn one below the other: the reader selects one
_AT_ONCE = 3


def show(here: PageContext) -> None:
    """A metric, with one heat map for each combination of the other swept keys; a click opens the cell."""
    run = here.run()
    figure = figure_menu(run)
    rows = run.rows(figure)
    blocks: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        blocks.setdefault(setting(row, run.swept), []).append(row)
    shown = list(blocks)
    if len(blocks) > _AT_ONCE:
        first = sorted(
            shown, key=lambda block: not _has_figures(blocks[block], figure)
        )  # stable: else in the suite's order
        place = words.escape_label(", ".join(run.swept))
        shown = [address.menu(place, shown, "setting", default=first[0])]
    st.caption(_explain_figure(run, figure))
    table = run.table(figure)
    for number, block in enumerate(shown):
        if len(shown) > 1:
            st.text(block)
        says = f"{run.name}: {FIGURES[figure].heading}, attacks by defenses" + (f"; {block}" if block else "")
        _heatmap(here, blocks[block], figure, says, number)
        with st.expander("As a table"):
            st.dataframe(_texts(table, block), hide_index=True, width="stretch")
    _by_name(here, run, [row for block in shown for row in blocks[block]])


def _has_figures(rows: Sequence[dict[str, Any]], figure: str) -> bool:
    """Whether any attacked cell has the metric: without malicious clients all of them are refused."""
    attacked = [row for row in rows if row["attack"] != "none"] or rows
    return any(row[figure] is not None for row in attacked)


def _explain_figure(run: Run, figure: str) -> str:
    better = "More" if FIGURES[figure].more_is_better else "Less"
    return (
        f"{better} is better for the defender; {over_seeds(len(run.seeds))}. Gray: no value, and why. * An "
        "attack that failed or was not run may be worse. Click a field to open its cell, or choose it below."
    )


def _heatmap(here: PageContext, rows: Sequence[dict[str, Any]], figure: str, alt_text: str, number: int) -> None:
    clicked = alt.selection_point(name="clicked", fields=["cell"], toggle=False)
    chart = heatmap(rows, figure).add_params(clicked)
    with sideways(f"wide-{number}", least_width(rows)):
        said = st.altair_chart(
            chart, width="stretch", on_select="rerun", selection_mode="clicked", key=f"heatmap {number}", alt=alt_text
        )
    chosen = [one["cell"] for one in said["selection"]["clicked"] if one.get("cell")]
    if chosen:
        here.go("cell", cell=str(chosen[0]))


def _texts(table: Matrix, block: str) -> list[dict[str, str]]:
    """The matrix as text, for readers who do not see colors."""
    rows = table.blocks.get(block, {})
    return [
        {"attack": attack, **{defense: entry.text() for defense, entry in entries.items()}}
        for attack, entries in rows.items()
    ]


@st.fragment
def _by_name(here: PageContext, run: Run, rows: Sequence[dict[str, Any]]) -> None:
    """Keyboard access to a cell."""
    cells = {data.label(row, run.swept): row["cell"] for row in rows}
    chosen = st.selectbox("Cell", list(cells), key="by name")
    here.link("cell", "Open this cell", cell=cells[chosen])
