"""The messages of one step of secure aggregation, and the cost of a round over the number of clients."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import altair as alt
import pandas as pd

from fedguard.app.charts.colors import COLORS, GRAY
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.explain.session import ProtocolStep, SessionCost


def flow(step: ProtocolStep, clients: int, silent: Collection[int]) -> alt.LayerChart:
    """The messages of one step: the server above, clients in a row below, clients that dropped out hollow.

    A message that its receiver refuses is a dashed line.
    """
    middle = (clients - 1) / 2
    parties = [
        {"x": middle, "y": 1, "label": "server", "state": "takes part"},
        *(
            {"x": client, "y": 0, "label": f"client {client}", "state": "silent" if client in silent else "takes part"}
            for client in range(clients)
        ),
    ]
    place = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.7, clients - 0.3]))
    height = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-0.35, 1.35]))
    lines = [
        {
            "message": f"{step.kind} {number}",
            "x": middle if end == "server" else float((event.receiver if step.from_server else event.sender) or 0),
            "y": 0.9 if end == "server" else 0.12,
            "way": "refused" if event.error else "arrives",
            "bytes": event.size,
        }
        for number, event in enumerate(step.events)
        for end in ("server", "client")
    ]
    ways = alt.Scale(domain=["arrives", "refused"], range=[COLORS[0], COLORS[3]])
    routes = (
        alt.Chart(pd.DataFrame(lines))
        .mark_line(strokeWidth=2)
        .encode(
            x=place,
            y=height,
            detail=alt.Detail("message:N"),
            color=alt.Color("way:N", title="message", scale=ways, legend=None),
            strokeDash=alt.StrokeDash(
                "way:N", scale=alt.Scale(domain=["arrives", "refused"], range=[[1, 0], [5, 4]]), legend=None
            ),
            tooltip=tooltips("message:N", "bytes:Q", "way:N"),
        )
    )
    base = alt.Chart(pd.DataFrame(parties)).encode(x=place, y=height)
    circles = base.mark_point(size=220, color=GRAY, strokeWidth=2).encode(
        fill=alt.Fill(
            "state:N",
            scale=alt.Scale(domain=["takes part", "silent"], range=[GRAY, "transparent"]),
            legend=None,
        ),
        tooltip=tooltips("label:N", "state:N"),
    )
    above = base.transform_filter("datum.y == 1").mark_text(dy=-18, color=GRAY).encode(text=alt.Text("label:N"))
    below = base.transform_filter("datum.y == 0").mark_text(dy=20, color=GRAY).encode(text=alt.Text("label:N"))
    return alt.LayerChart(layer=[routes, circles, above, below]).properties(height=220, width="container")


def cost(costs: Sequence[SessionCost]) -> alt.HConcatChart:
    """Bytes that one client sends and receives over the number of clients, on the complete and on the sparse graph."""
    rows = [
        {
            "clients": one.clients,
            "graph": one.graph,
            "neighbors": one.neighbors,
            "hidden": one.anonymity,
            "way": way,
            "kB": count / 1000,
        }
        for one in costs
        for way, count in (("a client sends", one.up), ("a client receives", one.down))
    ]
    frame = pd.DataFrame(rows)
    upwards = alt.Scale(type="log", domain=[frame["kB"].min() / 1.2, frame["kB"].max() * 1.2], nice=False)
    bottom = alt.Legend(orient="bottom")
    panels = [
        alt.Chart(frame[frame.way == way])
        .mark_line(point=True)
        .encode(
            x=alt.X("clients:Q", title="clients", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("kB:Q", title="kB in a round", scale=upwards),
            color=alt.Color(
                "graph:N", scale=alt.Scale(domain=["complete", "sparse"], range=list(COLORS[:2])), legend=bottom
            ),
            strokeDash=alt.StrokeDash(
                "graph:N", scale=alt.Scale(domain=["complete", "sparse"], range=[[1, 0], [5, 4]]), legend=bottom
            ),
            tooltip=tooltips("clients", "graph", "neighbors", alt.Tooltip("hidden:Q", title="fewest in a sum"), "kB"),
        )
        .properties(title=way, width=340, height=280)
        for way in dict.fromkeys(frame["way"])
    ]
    chart: alt.HConcatChart = alt.hconcat(*panels).properties(autosize="pad")
    return chart
