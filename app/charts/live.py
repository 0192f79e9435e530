"""Test accuracy over the rounds while a run is under way, and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.colours import COLOURS
from fedguard.app.charts.tooltips import tooltips

#: Of a longer training every second round is drawn, or every third ..., so that a browser keeps up.
MOST = 200


def live(points: Sequence[Mapping[str, Any]], rounds: int) -> alt.Chart:
    """One line per cell and seed; seeds of a cell share its colour. Of a long training at most `MOST` rounds are drawn.

    Args:
        points: cell (in words), seed, round, accuracy (a share in [0, 1]).
        rounds: of the whole training, so that the axis stands still.
    """
    every = -(-rounds // MOST)
    kept = [point for point in points if point["round"] % every == 0 or point["round"] == rounds]
    table = pd.DataFrame(kept, columns=["cell", "seed", "round", "accuracy"])
    table["accuracy"] = 100 * table["accuracy"].astype(float)
    chart: alt.Chart = (
        alt.Chart(table)
        .mark_line(point=alt.OverlayMarkDef(size=18))
        .encode(
            x=alt.X(
                "round:Q", title="round", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(domain=[0, rounds], nice=False)
            ),
            y=alt.Y("accuracy:Q", title="test accuracy in %", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color(
                "cell:N",
                title=None,
                sort=list(dict.fromkeys(table["cell"])),
                scale=alt.Scale(range=COLOURS),
                legend=alt.Legend(orient="bottom", columns=2, labelLimit=500),
            ),
            detail=alt.Detail("seed:N"),
            tooltip=tooltips(
                "cell:N", "seed:N", "round:Q", alt.Tooltip("accuracy:Q", format=".1f", title="accuracy in %")
            ),
        )
        .properties(height=340, width="container")
    )
    return chart
