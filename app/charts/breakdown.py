"""A figure over a swept number."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd
from fedguard.app.charts.colours import COLOURS

from fedguard.bench.breakdown import Breakdown
from fedguard.bench.matrix import FIGURES
from fedguard.bench.plot import is_logarithmic


def breakdown(curves: Breakdown, setting: str = "") -> alt.FacetChart:
    """A figure over a swept number: one panel per attack and one for the worst of them, one line per defense.

    Bands are 95 % intervals over seeds. A point that was refused, failed or is missing is a cross at the foot.
    """
    known = FIGURES[curves.figure]
    table = pd.DataFrame(points(curves, setting), columns=_COLUMNS)
    numbers = curves.positions or ()
    logarithmic = bool(numbers) and is_logarithmic(numbers)
    along = alt.Scale(type="log" if logarithmic else "linear", reverse=bool(numbers) and numbers[0] > numbers[-1])
    if numbers:
        along.domain = [min(numbers), max(numbers)]
    upwards = alt.Scale(domain=[0, 100]) if known.unit == "%" and known.more_is_better else alt.Scale(zero=True)
    defenses = list(dict.fromkeys(table["defense"]))
    named = alt.Legend(title="defense", orient="top", columns=4, labelLimit=300, symbolOpacity=1)
    base = alt.Chart().encode(
        x=alt.X("position:Q", title=curves.key, scale=along),
        color=alt.Color("defense:N", legend=named, sort=defenses, scale=alt.Scale(range=COLOURS)),
        tooltip=["attack:N", "defense:N", alt.Tooltip("value:N", title=curves.key), "figure:N", "status:N"],
    )
    along_mean = alt.Y("mean:Q", title=known.heading, scale=upwards)
    band = base.mark_area(opacity=0.12, clip=True).encode(y=alt.Y("low:Q", title=known.heading), y2="high:Q")
    lines = base.mark_line().encode(y=along_mean)
    marks = base.mark_point(filled=True, size=45, opacity=1).encode(
        y=along_mean, shape=alt.Shape("defense:N", legend=named, sort=defenses)
    )
    crosses = base.mark_text(text="\u00d7", fontSize=16).encode(y="foot:Q")
    panel = alt.Facet("attack:N", title=None, sort=list(dict.fromkeys(table["attack"])))
    chart: alt.FacetChart = (
        alt.layer(band, lines, marks, crosses, data=table)
        .properties(width=390, height=230)
        .facet(facet=panel, columns=2)
    )
    return chart


_COLUMNS = ["attack", "defense", "value", "position", "mean", "low", "high", "foot", "figure", "status"]


def points(curves: Breakdown, setting: str) -> list[dict[str, Any]]:
    """One row for each curve and point of a setting, in the figure's unit."""
    known = FIGURES[curves.figure]
    found = []
    for row in curves.rows():
        if row["setting"] != setting:
            continue
        place: dict[str, Any] = {key: row[key] for key in ("attack", "defense", "value", "position", "status")}
        if row["mean"] is None:
            found.append({**place, "mean": None, "low": None, "high": None, "foot": 0.0, "figure": row["status"]})
            continue
        mean, half = known.scale * row["mean"], known.scale * (row["half_width"] or 0)
        spread = "" if row["half_width"] is None else f" ± {known.text(row['half_width'])}"
        said = f"{known.text(row['mean'])}{spread} {known.unit}".strip()
        found.append({**place, "mean": mean, "low": mean - half, "high": mean + half, "foot": None, "figure": said})
    return found
