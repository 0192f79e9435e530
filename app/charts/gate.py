"""Measurements of a gate: drops beside their margins, and metrics over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.gate.verdict import WORDS, GateVerdict
from fedguard.metrics.figures import FIGURES

#: Color and shape of each verdict, since color alone must not carry meaning; colors by Okabe and Ito
COLORS = {
    "improved": "#0072B2",
    "identical": "#56B4E9",
    "pass": "#009E73",
    "inconclusive": "#E69F00",
    "regressed": "#D55E00",
    "missing": "#999999",
}
SHAPES = {
    "improved": "triangle-up",
    "identical": "circle",
    "pass": "circle",
    "inconclusive": "diamond",
    "regressed": "triangle-down",
    "missing": "cross",
}

#: Verdicts on a whole run, and their shapes
OUTCOMES = {"passed": "circle", "regressed": "triangle-down", "cannot judge": "cross", "not judged": "square"}


#: Height of a row, in pixels
_ROW = 24


def drops(verdict: GateVerdict) -> dict[str, alt.LayerChart]:
    """By metric, how much worse each cell became, in the metric's unit: one dot per cell, a bar up to its margin."""
    figures = dict.fromkeys(one.figure for one in verdict.judgments if one.drop is not None)
    return {figure: _drops(verdict, figure) for figure in figures}


def trend(points: Sequence[Mapping[str, Any]], figure: str) -> alt.LayerChart:
    """A metric over time: mean over cells and worst case with 95 % intervals over seeds, with the gate's verdict as shape.

    Args:
        points: time (seconds since 1970), run, commit, what (which mean), mean, low, high (in the displayed unit), cells (their
            number), "cells as in" (the first run of the same cells; a line joins these), verdict (a key of `OUTCOMES`).
    """
    table = pd.DataFrame(points)
    table["time"] = pd.to_datetime(table["time"], unit="s")
    shape = alt.Shape("verdict:N", title="gate", scale=alt.Scale(domain=list(OUTCOMES), range=list(OUTCOMES.values())))
    base = alt.Chart(table).encode(
        x=alt.X("time:T", title="started (UTC)", axis=alt.Axis(format="%Y-%m-%d %H:%M", labelOverlap=True)),
        color=alt.Color("what:N", title=None, scale=alt.Scale(range=["#0072B2", "#D55E00"])),
        tooltip=tooltips(
            *("run:N", "what:N", "mean:Q", "low:Q", "high:Q", "cells:Q", "cells as in:N", "verdict:N", "commit:N"),
            alt.Tooltip("time:T", format="%Y-%m-%d %H:%M"),
        ),
    )
    spread = base.mark_rule(strokeWidth=2, opacity=0.5).encode(
        y=alt.Y("low:Q", title=FIGURES[figure].heading), y2=alt.Y2("high:Q")
    )
    means = alt.Y("mean:Q", title=FIGURES[figure].heading, scale=alt.Scale(zero=False))
    chart: alt.LayerChart = (
        spread
        + base.mark_line(opacity=0.6).encode(y=means, detail=alt.Detail("cells as in:N"))
        + base.mark_point(size=90, filled=True).encode(y=means, shape=shape)
    ).properties(height=320, width="container")
    return chart


def _drops(verdict: GateVerdict, figure: str) -> alt.LayerChart:
    scale = FIGURES[figure].scale
    table = pd.DataFrame(
        [
            {
                "cell": one.label,
                "verdict": one.verdict,
                "drop": scale * one.drop,
                "margin": None if one.margin is None else scale * one.margin,
                "p": one.p_value,
                "why": one.why,
                "zero": 0.0,
            }
            for one in verdict.judgments
            if one.figure == figure and one.drop is not None
        ]
    ).sort_values("drop", ascending=False)
    words = [word for word in WORDS if word in set(table["verdict"])]
    base = alt.Chart(table).encode(
        y=alt.Y(
            "cell:N",
            title=None,
            sort=list(table["cell"]),
            axis=alt.Axis(labelLimit=400, labelOverlap=False, labelFlush=False),
        ),
        tooltip=tooltips("cell:N", "verdict:N", "drop:Q", "margin:Q", "p:Q", "why:N"),
    )
    unit = f" in {FIGURES[figure].unit_of_differences}".removesuffix(" in ")
    margin = base.mark_bar(height=10, color="#999999", opacity=0.35).encode(
        x=alt.X("zero:Q", title=f"{FIGURES[figure].title}: worse by{unit} (the bar is the margin)"),
        x2=alt.X2("margin:Q"),
    )
    dots = base.mark_point(size=90, filled=True, opacity=1).encode(
        x=alt.X("drop:Q"),
        color=alt.Color(
            "verdict:N", title="verdict", scale=alt.Scale(domain=words, range=[COLORS[word] for word in words])
        ),
        shape=alt.Shape(
            "verdict:N", title="verdict", scale=alt.Scale(domain=words, range=[SHAPES[word] for word in words])
        ),
    )
    chart: alt.LayerChart = (margin + dots).properties(height=alt.Step(_ROW), width="container", autosize="fit-x")
    return chart
