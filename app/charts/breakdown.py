"""A figure over a swept number."""

from __future__ import annotations

import altair as alt
import pandas as pd

from fedguard.bench.breakdown import Breakdown
from fedguard.bench.matrix import FIGURES
from fedguard.bench.plot import is_logarithmic


def breakdown(curves: Breakdown, setting: str = "") -> alt.FacetChart:
    """A figure over a swept number: one panel per attack and one for the worst of them, one line per defense.

    Bands are 95 % intervals over seeds.
    """
    known = FIGURES[curves.figure]
    rows = [row for row in curves.rows() if row["setting"] == setting and row["mean"] is not None]
    points = [
        {
            **row,
            "mean": known.scale * row["mean"],
            "low": known.scale * (row["mean"] - (row["half_width"] or 0)),
            "high": known.scale * (row["mean"] + (row["half_width"] or 0)),
        }
        for row in rows
    ]
    numbers = curves.positions or ()
    logarithmic = bool(numbers) and is_logarithmic(numbers)
    along = alt.Scale(type="log" if logarithmic else "linear", reverse=bool(numbers) and numbers[0] > numbers[-1])
    base = alt.Chart().encode(
        x=alt.X("position:Q", title=curves.key, scale=along),
        color=alt.Color("defense:N", title="defense", sort=list(dict.fromkeys(row["defense"] for row in rows))),
        tooltip=["attack", "defense", alt.Tooltip("value:N", title=curves.key), "mean", "low", "high"],
    )
    low, high = alt.Y("low:Q", title=known.heading, scale=alt.Scale(zero=known.unit == "%")), alt.Y2("high:Q")
    band = base.mark_area(opacity=0.15).encode(y=low, y2=high)
    lines = base.mark_line(point=True).encode(y=alt.Y("mean:Q", title=known.heading))
    chart: alt.FacetChart = alt.layer(band, lines, data=pd.DataFrame(points)).facet(
        facet=alt.Facet("attack:N", title=None, sort=list(dict.fromkeys(row["attack"] for row in rows))), columns=2
    )
    return chart
