"""Where defenses break, over a swept number."""

from __future__ import annotations

from typing import Any

import streamlit as st
from fedguard.app import data, words
from fedguard.app.charts.breakdown import breakdown
from fedguard.app.here import Here, empty

from fedguard.bench.breakdown import ACCURACIES, Breakdown
from fedguard.bench.matrix import FIGURES
from fedguard.bench.run import Run


def show(here: Here) -> None:
    """A figure over a swept key: curves, where half is lost, and every point."""
    run = here.run()
    keys = data.numeric_keys(run)
    if not keys:
        empty(
            "This run sweeps no number, so there is nothing to draw a curve over.",
            "fedguard run examples/breakdown.yaml",
        )
        return
    rows = run.rows()
    there = [figure for figure in FIGURES if any(row[figure] is not None for row in rows)] or ["final_accuracy"]
    left, middle, right = st.columns(3)
    key = left.selectbox("Over", keys, key="over", bind="query-params")
    figure = middle.selectbox(
        "Figure", there, format_func=lambda name: FIGURES[name].heading, key="figure", bind="query-params"
    )
    curves = run.breakdown(key, figure)
    settings = list(dict.fromkeys(curve.setting for curve in curves.curves))
    setting = settings[0]
    if len(settings) > 1:
        others = words.escaped(", ".join(other for other in run.swept if other != key))
        setting = right.selectbox(others, settings, key="of the others")
    _drawn(run, curves, setting)
    _summary(curves, setting)
    _points(curves, setting)


def _drawn(run: Run, curves: Breakdown, setting: str) -> None:
    seeds = len(run.seeds)
    spread = f"Means of {seeds} seeds, bands are 95 % intervals." if seeds > 1 else "One seed, so there are no bands."
    st.caption(f"{spread} A cross at the foot: refused, failed or missing there. Point at it to read which.")
    said = f"{run.name}: {FIGURES[curves.figure].heading} over {curves.key}: a panel for each attack, a line for each defense"
    st.altair_chart(breakdown(curves, setting), width="content", alt=said)


def _summary(curves: Breakdown, setting: str) -> None:
    if curves.figure not in ACCURACIES:
        return
    st.subheader("Where half is lost")
    st.caption(
        "Half: where half of the accuracy above chance is lost, on the line between two points. Area: the mean share of it "
        "that is kept along the key, 1 for all; of the points up to the last that was measured without a gap."
    )
    table = [_summary_row(row, curves) for row in curves.summary() if row["setting"] == setting]
    st.dataframe(table, hide_index=True, width="stretch")


def _summary_row(row: dict[str, Any], curves: Breakdown) -> dict[str, Any]:
    half, area = row["half"], row["area"]
    if half is None:
        half = "never" if row["until"] else "-"
    elif isinstance(half, float):
        half = f"{half:.3g}" + ("" if row["half_interval"] is None else f" ± {row['half_interval']:.2g}")
    kept = (
        "-"
        if area is None
        else f"{area:.2f}" + ("" if row["area_interval"] is None else f" ± {row['area_interval']:.2f}")
    )
    return {
        "attack": row["attack"],
        "defense": row["defense"],
        f"half is lost at {curves.key}": half,
        "area, share": kept,
        f"known up to {curves.key}": row["until"] or "-",
    }


def _points(curves: Breakdown, setting: str) -> None:
    st.subheader(f"{FIGURES[curves.figure].heading[0].upper()}{FIGURES[curves.figure].heading[1:]} at each point")
    table = [
        {
            "attack": curve.attack,
            "defense": curve.defense,
            **{
                f"{curves.key} = {label}": entry.text().replace("±", "± ")
                for label, entry in zip(curves.labels, curve.entries, strict=True)
            },
        }
        for curve in (*curves.curves, *curves.worst)
        if curve.setting == setting
    ]
    st.dataframe(table, hide_index=True, width="stretch")
