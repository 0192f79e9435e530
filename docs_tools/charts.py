"""Charts of the page on speed: growth with size, and FedGuard beside its peers, for light and dark backgrounds."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, tostring

import altair as alt
import pandas as pd

from docs_tools.goals import Measured
from fedguard.app.charts.colors import COLORS
from fedguard.bench.pages.svg import draw_figure, number_chart_ids

#: One side of a panel, in pixels.
_SIDE = 260


def figures(files: Measured) -> list[str]:
    """HTML of the charts for which there are files."""
    found = Element("div")
    for curves, says in _grown(files.get("growth", {}).get("figures", [])):
        found.append(draw_figure(curves, says))
    rows = files.get("peers", {}).get("figures", [])
    if trained := [row for row in rows if "system" in row]:
        found.append(
            draw_figure(_cohorts(trained), "Client updates per second of CPU, with as many threads as there are cores.")
        )
    if ruled := [row for row in rows if "byzfl" in row]:
        says = f"One aggregation in passes over memory, n = {ruled[0]['n']}, d = {ruled[0]['d']:,}, one thread."
        found.append(draw_figure(_rules(ruled), says))
    number_chart_ids(found)
    return [tostring(one, encoding="unicode", method="html") for one in found]


def _grown(curves: list[dict[str, Any]]) -> list[tuple[alt.HConcatChart, str]]:
    """Seconds, then memory; a panel for each quantity that grows."""
    points = pd.DataFrame([
        {"curve": curve["curve"], "grows": curve["grows"], "size": size, "seconds": seconds, "MiB": (held or 0) / 2**20}
        for curve in curves
        for size, seconds, held in zip(curve["values"], curve["seconds"], curve["bytes"], strict=True)
    ])  # fmt: skip
    if points.empty:
        return []
    says = "by what grows. Both axes are logarithmic: a straight line is a power."
    charts = [(_panels(points, "seconds"), f"Seconds, {says}")]
    if len(held := points[points["MiB"] > 0]):
        charts.append(
            (
                _panels(held, "MiB"),
                f"Memory at the peak beyond what was there before, in MiB, {says} Of suites: all of it.",
            )
        )
    return charts


def _panels(points: pd.DataFrame, figure: str) -> alt.VConcatChart:
    panels = [_panel(points[points["grows"] == grows], grows, figure) for grows in points["grows"].unique()]
    rows = [alt.hconcat(*panels[at : at + 2]) for at in range(0, len(panels), 2)]
    return alt.vconcat(*rows).resolve_scale(color="shared")


def _panel(points: pd.DataFrame, grows: str, figure: str) -> alt.Chart:
    logarithmic = alt.Scale(type="log", nice=False)
    return (
        alt.Chart(points)
        .mark_line(point=True)
        .encode(
            x=alt.X("size:Q", title=grows, scale=logarithmic, axis=alt.Axis(grid=False, format="~s")),
            y=alt.Y(f"{figure}:Q", title=figure, scale=alt.Scale(type="log"), axis=alt.Axis(format="~g", tickCount=5)),
            color=alt.Color("curve:N", title=None, sort=None, scale=alt.Scale(range=COLORS)),
        )
        .properties(width=_SIDE, height=_SIDE * 2 // 3)
    )


def _cohorts(rows: list[dict[str, Any]]) -> alt.FacetChart:
    table = pd.DataFrame([row for row in rows if row["cores"] == "all"])
    table["work"] = [f"{row.model}, {row.clients} clients with {row.images} images" for row in table.itertuples()]
    chart = _bars(table, "work", "updates_per_cpu_second", "client updates per second of CPU")
    return chart.resolve_scale(x="independent")  # a small model is trained a thousand times as fast as a large one


def _rules(rows: list[dict[str, Any]]) -> alt.FacetChart:
    table = pd.DataFrame([
        {"rule": row["rule"], "system": system, "passes": row[key]}
        for row in rows
        for system, key in (("FedGuard", "passes"), ("ByzFL", "byzfl"))
    ])  # fmt: skip
    return _bars(table, "rule", "passes", "passes over memory, fewer are better")


def _bars(table: pd.DataFrame, of: str, figure: str, title: str) -> alt.FacetChart:
    """A panel for each workload with a bar for each system. Bars start at zero, so the axis is not logarithmic."""
    base = alt.Chart().encode(
        y=alt.Y("system:N", title=None, sort=None), x=alt.X(f"{figure}:Q", title=title, axis=alt.Axis(grid=False))
    )
    ours = alt.condition(alt.datum.system == "FedGuard", alt.value(COLORS[0]), alt.value(COLORS[-1]))
    said = base.mark_text(align="left", dx=4).encode(text=alt.Text(f"{figure}:Q", format=",.3~r"))
    above = alt.Header(labelOrient="top", labelAnchor="start")
    panels = alt.layer(base.mark_bar().encode(color=ours), said, data=table).properties(width=420)
    return panels.facet(row=alt.Row(f"{of}:N", title=None, sort=list(dict.fromkeys(table[of])), header=above))
