"""Which client trained when in simulated time, and the fate of each update."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.colors import COLORS, GRAY
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.records.schema import Timeline

#: Colors by fate, in the order of the legend
FATES = {"arrived": COLORS[2], "late": COLORS[1], "lost": COLORS[3], "interrupted": COLORS[4]}

#: Height of a client in pixels
_ROW = 16

#: With more rounds than this, the lines at their ends are not drawn: they would hide the bars
_MOST_ROUNDS = 60


def timeline(found: Timeline) -> alt.LayerChart:
    """A row for each client, malicious ones on top; a bar from its download of the model to the end of each training.

    Without a bar the client was idle: it waited for others, was not selected, or was offline. Gray lines end the rounds.
    """
    table = pd.DataFrame(bars(found), columns=["client", "began", "ended", "fate"])
    rows = list(dict.fromkeys(_name(found, client) for client in _order(found)))
    along = alt.Axis(title="simulated seconds")
    base = alt.Chart(table).mark_bar(height=_ROW - 5, stroke="white", strokeWidth=0.5)
    drawn = base.encode(
        x=alt.X("began:Q", axis=along, scale=alt.Scale(nice=False, zero=True)),
        x2=alt.X2("ended:Q"),
        y=alt.Y("client:N", title="client", scale=alt.Scale(domain=rows), axis=alt.Axis(labelOverlap=False)),
        color=alt.Color("fate:N", title="its update", scale=alt.Scale(domain=list(FATES), range=list(FATES.values()))),
        tooltip=tooltips(
            "client:N",
            "fate:N",
            alt.Tooltip("began:Q", format=".3f"),
            alt.Tooltip("ended:Q", format=".3f"),
        ),
    )
    ends = pd.DataFrame({"end": found["rounds"] if len(found["rounds"]) <= _MOST_ROUNDS else []})
    rules = alt.Chart(ends).mark_rule(color=GRAY, opacity=0.7).encode(x=alt.X("end:Q", axis=along))
    chart: alt.LayerChart = alt.LayerChart(layer=[rules, drawn]).properties(height=alt.Step(_ROW), width="container")
    return chart


def bars(found: Timeline) -> list[dict[str, Any]]:
    """One row for each local training: client, began, ended, fate."""
    columns = zip(found["client"], found["began"], found["ended"], found["fate"], strict=True)
    return [
        {"client": _name(found, client), "began": began, "ended": ended, "fate": fate}
        for client, began, ended, fate in columns
    ]


def _order(found: Timeline) -> list[int]:
    return sorted(set(found["client"]), key=lambda client: (client not in found["malicious"], client))


def _name(found: Timeline, client: int) -> str:
    return f"{client} malicious" if client in found["malicious"] else str(client)
