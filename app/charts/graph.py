"""Nodes without a server: the graph of messages, and the accuracy of each node."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.colors import COLORS, GRAY
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.records.schema import NodeMetrics

#: With more links than this, none are drawn: the graph would be unreadable
_MOST_LINKS = 600

#: Curves of the nodes over the rounds, by name in a record, with the name on the page
LINES = {
    "best": "best node",
    "worst": "worst node",
    "mean_model": "mean of the models",
}


def graph(found: NodeMetrics, evaluation: int) -> alt.LayerChart:
    """Circles are honest nodes, brighter with accuracy after one evaluation (from 0); crosses are malicious nodes."""
    points = lay_out_nodes(found, evaluation)
    spots = {row["node"]: row for row in points}
    lines = [
        {"x": spots[a]["x"], "y": spots[a]["y"], "x2": spots[b]["x"], "y2": spots[b]["y"], "kB": kilobytes}
        for (a, b), kilobytes in link_traffic(found).items()
    ]
    place: dict[str, Any] = {
        axis: alt.X(f"{axis}:Q", axis=None) if axis == "x" else alt.Y(f"{axis}:Q", axis=None) for axis in "xy"
    }
    edges = alt.Chart(pd.DataFrame(lines, columns=["x", "y", "x2", "y2", "kB"]))
    drawn = edges.mark_rule(color=GRAY, opacity=0.5).encode(**place, x2=alt.X2("x2:Q"), y2=alt.Y2("y2:Q"))
    if "traffic" in found:
        width = alt.Size("kB:Q", title="kB on a link", scale=alt.Scale(domainMin=0, range=[0.5, 6]))
        drawn = drawn.encode(size=width, tooltip=tooltips(alt.Tooltip("kB:Q", format=",.1f")))
    values = [value for row in found["curve"]["accuracy"] for value in row]
    scale = alt.Scale(domain=[100 * min(values), 100 * max(values)], scheme="viridis")
    tips = tooltips("node:N", "who:N", alt.Tooltip("accuracy:Q", format=".1f"))
    base = alt.Chart(pd.DataFrame(points))
    honest = (
        base.transform_filter("datum.who == 'honest'")
        .mark_circle(size=350, opacity=1)
        .encode(**place, color=alt.Color("accuracy:Q", title="accuracy in %", scale=scale), tooltip=tips)
    )
    malicious = (
        base.transform_filter("datum.who == 'malicious'")
        .mark_point(shape="cross", size=250, angle=45, filled=True, opacity=1, color=COLORS[3])
        .encode(**place, tooltip=tips)
    )
    chart: alt.LayerChart = alt.LayerChart(layer=[drawn, honest, malicious]).properties(height=380, width="container")
    return chart


def link_traffic(found: NodeMetrics) -> dict[tuple[int, int], float]:
    """Kilobytes by link, both directions together; 0 if all links are alike."""
    both: dict[tuple[int, int], float] = {}
    for (a, b), sent in zip(found["links"], found.get("traffic", [0] * len(found["links"])), strict=True):
        pair = (min(a, b), max(a, b))
        both[pair] = both.get(pair, 0.0) + sent / 1000
    return dict(list(both.items())[:_MOST_LINKS])


def lay_out_nodes(found: NodeMetrics, evaluation: int) -> list[dict[str, Any]]:
    """One row for each node: node, who, accuracy in % (None for malicious nodes), x, y."""
    import networkx

    drawing: networkx.Graph[int] = networkx.Graph([(a, b) for a, b in found["links"]])
    drawing.add_nodes_from([*found["honest"], *found["malicious"]])
    if found["links"]:
        start = networkx.spectral_layout(drawing)  # a ring as a ring
        apart = len({tuple(place.round(6)) for place in start.values()}) == len(start)
        places = networkx.kamada_kawai_layout(drawing, pos=start if apart else None)
    else:
        places = networkx.circular_layout(drawing)
    accuracy = dict(zip(found["honest"], found["curve"]["accuracy"][evaluation], strict=True))
    return [
        {
            "node": node,
            "who": "honest" if node in accuracy else "malicious",
            "accuracy": 100 * accuracy[node] if node in accuracy else None,
            "x": float(places[node][0]),
            "y": float(places[node][1]),
        }
        for node in sorted(drawing.nodes)
    ]


def by_round(found: NodeMetrics, rounds: list[int]) -> alt.LayerChart:
    """Best and worst node over the rounds, and the mean of the models."""
    curve: dict[str, list[float]] = {name: found["curve"][name] for name in LINES}  # type: ignore[literal-required]
    rows = [
        {"round": round, "of": LINES[name], "accuracy": 100 * value}
        for name, values in curve.items()
        for round, value in zip(rounds, values, strict=True)
    ]
    color = alt.Color(
        "of:N",
        title=None,
        legend=alt.Legend(orient="bottom"),
        scale=alt.Scale(domain=list(LINES.values()), range=[COLORS[2], COLORS[3], GRAY]),
    )
    lines = (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("round:Q", title="round"),
            y=alt.Y("accuracy:Q", title="accuracy in %", scale=alt.Scale(domain=[0, 100])),
            color=color,
            tooltip=tooltips("of:N", "round:Q", alt.Tooltip("accuracy:Q", format=".1f")),
        )
    )
    chart: alt.LayerChart = alt.LayerChart(layer=[lines]).properties(height=280, width="container")
    return chart
