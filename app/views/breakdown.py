"""Breakdown of defenses over a swept number."""

from __future__ import annotations

from typing import Any

import streamlit as st

from fedguard.app import address, data, words
from fedguard.app.charts.breakdown import breakdown, has_gaps
from fedguard.app.figure import figure_menu
from fedguard.app.here import PageContext, empty
from fedguard.bench.results.breakdown import ACCURACIES, Breakdown
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import ENOUGH, bracket, over_seeds

#: Rows of a table that is shown in full; a longer one scrolls
_WHOLE = 40


def show(here: PageContext) -> None:
    """A metric over a swept key: curves, the value at which half is lost, and every point."""
    run = here.run()
    keys = data.numeric_keys(run)
    if not keys:
        empty(
            "This run sweeps no number, so there is nothing to draw a curve over.",
            "fedguard run examples/breakdown_f.yaml",
        )
        return
    left, middle, right = st.columns(3)
    key = address.menu("Over", keys, "over", place=left)
    figure = figure_menu(run, middle)
    curves = run.breakdown(key, figure)
    settings = list(dict.fromkeys(curve.setting for curve in curves.curves))
    setting = settings[0]
    if len(settings) > 1:
        others = words.escape_label(", ".join(other for other in run.swept if other != key))
        setting = address.menu(others, settings, "others", place=right)
    _draw_breakdown(run, curves, setting)
    _summary(curves, setting)
    _points(curves, setting)


def _draw_breakdown(run: Run, curves: Breakdown, setting: str) -> None:
    seeds = len(run.seeds)
    says = [f"{over_seeds(seeds).capitalize()}{', as an upright line' if seeds >= ENOUGH else ''}."]
    says.append("The points of the defenses stand a little beside each other, at the same value.")
    if has_gaps(curves, setting):
        says.append("A cross at the foot: refused, failed or missing there. Point at it to read which.")
    st.caption(" ".join(says))
    heading = FIGURES[curves.figure].heading
    described = f"{run.name}: {heading} over {curves.key}: a panel for each attack, a line for each defense"
    st.altair_chart(breakdown(curves, setting), width="content", alt=described)


def _summary(curves: Breakdown, setting: str) -> None:
    if curves.figure not in ACCURACIES:
        return
    st.subheader("Where half is lost")
    st.caption(
        "Half: where half of the accuracy above chance is lost, on the line between two points. Area: the mean share of it "
        "that is kept along the key, 1 for all; of the points up to the last that was measured without a gap."
    )
    table = [_summary_row(row, curves) for row in curves.summary() if row["setting"] == setting]
    st.dataframe(table, hide_index=True, width="stretch", height="content" if len(table) <= _WHOLE else "auto")


def _summary_row(row: dict[str, Any], curves: Breakdown) -> dict[str, Any]:
    half, area = row["half"], row["area"]
    if half is None:
        half = "never" if row["until"] else "-"
    elif isinstance(half, float):
        half = f"{half:.3g}" + (
            "" if row["half_interval"] is None else f" {bracket(half, row['half_interval'], '.3g')}"
        )
    kept = (
        "-"
        if area is None
        else f"{area:.2f}" + ("" if row["area_interval"] is None else f" {bracket(area, row['area_interval'], '.2f')}")
    )
    return {
        "attack": row["attack"],
        "defense": row["defense"],
        f"half is lost at {curves.key}": half,
        "area, share kept": kept,
        f"known up to {curves.key}": row["until"] or "-",
    }


@st.fragment
def _points(curves: Breakdown, setting: str) -> None:
    """For one attack, a table with the values of the key as rows and the defenses as columns."""
    heading = FIGURES[curves.figure].heading
    st.subheader(f"{heading[0].upper()}{heading[1:]} at each point")
    shown = [curve for curve in (*curves.worst, *curves.curves) if curve.setting == setting]
    attacks = list(dict.fromkeys(curve.attack for curve in shown))
    attack = st.selectbox("Attack", attacks, key="points of")
    table = [
        {
            curves.key: label,
            **{curve.defense: curve.entries[number].text() for curve in shown if curve.attack == attack},
        }
        for number, label in enumerate(curves.labels)
    ]
    st.dataframe(table, hide_index=True, width="stretch")
