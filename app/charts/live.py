"""Accuracy or returns over the rounds during a run and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.colors import COLORS
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.pages.cell_chart import MEASURES
from fedguard.bench.records.schema.result import Measured

#: Largest number of rounds drawn; of a longer training every second or third ... round, so that a browser keeps up
MOST = 200


def live(points: Sequence[Mapping[str, Any]], rounds: int, measure: Measured = "accuracy") -> alt.Chart:
    """One line per cell and seed; seeds of a cell share its color. Of a long training at most `MOST` rounds are drawn.

    Args:
        points: cell (in words), seed, round, value.
        rounds: rounds of the whole training, so that the axis does not move.
        measure: meaning of the values, a key of `MEASURES`.
    """
    every = -(-rounds // MOST)
    kept = [point for point in points if point["round"] % every == 0 or point["round"] == rounds]
    table = pd.DataFrame(kept, columns=["cell", "seed", "round", "value"])
    known = MEASURES[measure]
    table["value"] = known.scale * table["value"].astype(float)
    chart: alt.Chart = (
        alt.Chart(table)
        .mark_line(point=alt.OverlayMarkDef(size=18))
        .encode(
            x=alt.X(
                "round:Q", title="round", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(domain=[0, rounds], nice=False)
            ),
            y=alt.Y(
                "value:Q",
                title=known.title,
                scale=alt.Scale(domain=list(known.domain)) if known.domain else alt.Scale(zero=False),
            ),
            color=alt.Color(
                "cell:N",
                title=None,
                sort=list(dict.fromkeys(table["cell"])),
                scale=alt.Scale(range=COLORS),
                legend=alt.Legend(orient="bottom", columns=2, labelLimit=500),
            ),
            detail=alt.Detail("seed:N"),
            tooltip=tooltips("cell:N", "seed:N", "round:Q", alt.Tooltip("value:Q", format=".1f", title=known.title)),
        )
        .properties(height=340, width="container")
    )
    return chart
