"""Time by stage: a bar for each cell, divided into stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.colors import COLORS, GRAY
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.results.profile import ProfileEntry

#: All stages without a color of their own
REST = "all else"

#: In pixels: the height of a bar, the same with its gap, and the height that a second line of text adds
_BAR, _ROW, _LINE = 17, 24, 12


def profile(parts: Sequence[ProfileEntry], stages: Sequence[str]) -> alt.LayerChart:
    """One bar for each part, with the length of its rounds; its pieces are stages.

    Args:
        parts: from top to bottom.
        stages: those with a color of their own, from left to right; see `select_stages`.
    """
    rows = pieces(parts, stages)
    places = list(dict.fromkeys(row["place"] for row in rows))
    colors = {stage.replace("_", " "): color for stage, color in zip(stages, COLORS, strict=False)}
    if any(row["stage"] == REST for row in rows):
        colors[REST] = GRAY
    two = any("\n" in place for place in places)
    axis = alt.Axis(
        labelExpr="split(datum.label, '\\n')",
        labelOffset=-_LINE / 2 if two else 0,
        labelLimit=300,
        labelFlush=False,
        ticks=False,
        domain=False,
    )
    along = alt.X("ms:Q", title="milliseconds per round", axis=alt.Axis(tickCount=6))
    base = alt.Chart(pd.DataFrame(rows)).encode(y=alt.Y("place:N", sort=places, title=None, axis=axis))
    bars = base.mark_bar(size=_BAR, stroke="white", strokeWidth=0.5, strokeOpacity=0.6).encode(
        x=along,
        color=alt.Color(
            "stage:N",
            title=None,
            scale=alt.Scale(domain=list(colors), range=list(colors.values())),
            legend=alt.Legend(orient="top", columns=3, labelLimit=200, symbolStrokeWidth=0),
        ),
        order=alt.Order("order:Q"),
        tooltip=tooltips(
            "cell:N",
            "stage:N",
            alt.Tooltip("ms:Q", title="ms per round", format=",.2f"),
            alt.Tooltip("share:Q", title="of the cell's time", format=".1%"),
            alt.Tooltip("seconds:Q", title="s per trial", format=",.3f"),
            alt.Tooltip("cpu:Q", title="CPU s per trial", format=",.3f"),
        ),
    )
    ends = base.transform_filter("datum.total").mark_text(align="left", dx=5, color=GRAY)
    chart: alt.LayerChart = alt.LayerChart(
        layer=[bars, ends.encode(x=alt.X("end:Q"), text=alt.Text("total:N"))]
    ).properties(height=alt.Step(_ROW + _LINE * two), width="container", autosize="fit-x")
    return chart


def select_stages(whole: ProfileEntry) -> list[str]:
    """The slowest stages, as many as there are colors beside gray, which the rest has."""
    return [stage.name for stage in whole.stages if stage.name != "other"][: len(COLORS) - 1]


def pieces(parts: Sequence[ProfileEntry], stages: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each piece of a bar; the first of each bar has its length and its label."""
    return [row for part in parts for row in _pieces(part, stages)]


def _pieces(part: ProfileEntry, stages: Sequence[str]) -> Iterator[dict[str, Any]]:
    alike: dict[str, list[dict[str, Any]]] = {name: [] for name in (*stages, REST)}
    for row in part.rows():
        alike[row["stage"] if row["stage"] in stages else REST].append(row)
    first = {"end": part.ms_per_round, "total": f"{part.ms_per_round:,.1f}"}
    for order, (name, rows) in enumerate(alike.items()):
        if rows:
            yield {
                "cell": part.place,
                "place": part.place.removesuffix(f", {part.setting}") + (part.setting and f"\n{part.setting}"),
                "stage": name.replace("_", " "),
                "order": order,
                "ms": sum(row["ms_per_round"] for row in rows),
                "share": sum(row["share"] for row in rows),
                "seconds": sum(row["seconds_per_trial"] for row in rows),
                "cpu": sum(row["cpu_seconds_per_trial"] for row in rows),
                **first,
            }
            first = {"end": None, "total": None}
