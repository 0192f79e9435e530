"""Two runs: differences with their intervals, around a line at zero."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.results.comparison import Comparison, Difference
from fedguard.bench.results.places import label
from fedguard.metrics.figures import FIGURES

#: Blue and orange are distinguishable for everybody, on light and dark; the shape has the same meaning
_SIDES = {
    "better": ("#3b82f6", "triangle-up"),
    "worse": ("#e06c00", "triangle-down"),
    "undecided": ("#8a8a8a", "circle"),
    "identical": ("#8a8a8a", "square"),
}

#: Height of a row, in pixels
_ROW = 24


def compare(found: Comparison, figure: str) -> alt.LayerChart:
    """One row for each position: b - a over common seeds with its interval, the largest changes on top."""
    known = FIGURES[figure]
    rows = [_row(one) for one in found.differences if one.figure == figure and one.paired]
    sides = {side: looks for side, looks in _SIDES.items() if any(row["b is"] == side for row in rows)}
    unit = known.unit_of_differences
    heading = f"{known.title}, {found.b} - {found.a}" + (f" in {unit}" if unit else "")
    base = alt.Chart(pd.DataFrame(rows)).encode(
        y=alt.Y(
            "position:N",
            sort=[row["position"] for row in rows],
            title=None,
            axis=alt.Axis(labelLimit=400, labelFlush=False),
            scale=alt.Scale(padding=1),
        ),
        color=alt.Color(
            "b is:N",
            scale=alt.Scale(domain=[*sides], range=[color for color, _ in sides.values()]),
            title=f"{found.b} is",
        ),
        tooltip=tooltips("position", alt.Tooltip("words:N", title="found"), "pairs", alt.Tooltip("q:Q", format=".2g")),
    )
    zero = (
        alt.Chart(pd.DataFrame({"zero": [0]})).mark_rule(color="#8a8a8a", strokeDash=[4, 3]).encode(x=alt.X("zero:Q"))
    )
    spans = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=heading), x2=alt.X2("high:Q"))
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=alt.X("difference:Q", title=heading),
        shape=alt.Shape(
            "b is:N",
            scale=alt.Scale(domain=[*sides], range=[shape for _, shape in sides.values()]),
            title=f"{found.b} is",
        ),
    )
    chart: alt.LayerChart = (zero + spans + points).properties(
        height=alt.Step(_ROW), width="container", autosize="fit-x"
    )
    return chart


def _row(one: Difference) -> dict[str, Any]:
    assert one.paired is not None
    scale, mean = FIGURES[one.figure].scale, one.paired.mean
    low, high = one.interval or (mean, mean)
    return {
        "position": label(one.swept),
        "difference": scale * mean,
        "low": scale * low,
        "high": scale * high,
        "b is": one.direction,
        "words": one.words(),
        "pairs": one.paired.pairs,
        "p": one.p_adjusted,
    }
