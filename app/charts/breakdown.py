"""A metric over a swept number."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.colors import COLORS
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.results.breakdown import Breakdown
from fedguard.bench.terminal.plot import is_logarithmic
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import Estimate

#: Pixels between the points of two defenses, so that their intervals do not overlap
_BESIDE = 4

#: Largest number of values with all labels on the axis; of more values, some have labels
_NAMED = 12


def breakdown(curves: Breakdown, setting: str = "") -> alt.FacetChart:
    """A metric over a swept number: one panel per attack and one for the worst of them, one line per defense.

    Vertical lines are 95 % intervals over seeds. A cross at the bottom is a point that was refused, failed or is missing.
    """
    known = FIGURES[curves.figure]
    table = pd.DataFrame(points(curves, setting), columns=_COLUMNS)
    upwards = alt.Scale(domain=[0, 100]) if known.unit == "%" and known.more_is_better else alt.Scale(zero=True)
    defenses = list(dict.fromkeys(table["defense"]))
    named = alt.Legend(title="defense", orient="top", columns=3, columnPadding=40, labelLimit=300, symbolOpacity=1)
    base = alt.Chart().encode(
        x=_along(curves),
        color=alt.Color("defense:N", legend=named, sort=defenses, scale=alt.Scale(domain=defenses, range=COLORS)),
        tooltip=tooltips("attack:N", "defense:N", alt.Tooltip("value:N", title=curves.key), "figure:N", "status:N"),
    )
    along_mean = alt.Y("mean:Q", title=known.heading, scale=upwards)
    beside = alt.expr(f"{_BESIDE} * datum.beside")
    spans = base.mark_rule(opacity=0.7, strokeWidth=1.5, xOffset=beside).encode(
        y=alt.Y("low:Q", title=known.heading), y2=alt.Y2("high:Q")
    )
    ends = base.mark_tick(orient="horizontal", size=6, thickness=1.5, opacity=0.7, xOffset=beside)
    lines = base.mark_line(strokeWidth=1.5, xOffset=beside).encode(y=along_mean)
    marks = base.mark_point(filled=True, size=45, opacity=1, xOffset=beside).encode(
        y=along_mean, shape=alt.Shape("defense:N", legend=named, sort=defenses, scale=alt.Scale(domain=defenses))
    )
    crosses = base.mark_text(text="\u00d7", fontSize=16, xOffset=beside).encode(y=alt.Y("foot:Q"))
    panel = alt.Facet("attack:N", title=None, sort=list(dict.fromkeys(table["attack"])))
    layers = [spans, ends.encode(y=alt.Y("low:Q")), ends.encode(y=alt.Y("high:Q")), lines, marks, crosses]
    chart: alt.FacetChart = (
        alt.layer(*layers, data=table).properties(width=390, height=230).facet(facet=panel, columns=2)
    )
    return chart


def _along(curves: Breakdown) -> alt.X:
    """The axis of the key, from left to right in the order of the suite."""
    numbers = curves.positions or ()
    logarithmic = bool(numbers) and is_logarithmic(numbers)
    scale = alt.Scale(type="log" if logarithmic else "linear", reverse=bool(numbers) and numbers[0] > numbers[-1])
    axis = alt.Axis(labelFlush=False)
    if numbers:
        scale.domain = [min(numbers), max(numbers)]
        scale.nice, scale.padding = False, 12
    if len(numbers) <= _NAMED:
        axis.values, axis.format = [*numbers], "~g"
    return alt.X("position:Q", title=curves.key, scale=scale, axis=axis)


def has_gaps(curves: Breakdown, setting: str = "") -> bool:
    """Whether a point has no value."""
    return any(row["mean"] is None for row in points(curves, setting))


_COLUMNS = ["attack", "defense", "beside", "value", "position", "mean", "low", "high"]
_COLUMNS += ["foot", "figure", "status"]


def points(curves: Breakdown, setting: str) -> list[dict[str, Any]]:
    """One row for each curve and point of a setting, in the metric's unit."""
    known = FIGURES[curves.figure]
    rows = [row for row in curves.rows() if row["setting"] == setting]
    defenses = list(dict.fromkeys(row["defense"] for row in rows))
    found = []
    for row in rows:
        place: dict[str, Any] = {key: row[key] for key in ("attack", "defense", "value", "position", "status")}
        place["beside"] = defenses.index(row["defense"]) - (len(defenses) - 1) / 2
        if row["mean"] is None:
            nothing = dict.fromkeys(("mean", "low", "high"))
            found.append({**place, **nothing, "foot": 0.0, "figure": row["status"]})
            continue
        measured = Estimate(row["mean"], row["low"], row["high"], 0, row["censored"])
        said = known.format_with_unit(measured)
        ends = {end: None if row[end] is None else known.scale * row[end] for end in ("low", "high")}
        found.append({**place, "mean": known.scale * row["mean"], **ends, "foot": None, "figure": said})
    return found
