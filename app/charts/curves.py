"""Curves over the training, and accuracy by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from fedguard.app.charts.colors import COLORS, GRAY
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.records.record import curve
from fedguard.bench.records.schema import Record
from fedguard.bench.records.schema.result import Axis, Measured
from fedguard.metrics.figures import FIGURES


class Measure(NamedTuple):
    """A quantity of a curve: its title with the unit, the factor of a record's value, and the axis if it is fixed."""

    title: str
    scale: float = 100.0
    domain: tuple[float, float] | None = (0, 100)

    @property
    def along(self) -> alt.Scale:
        """The scale of its axis."""
        return alt.Scale(domain=list(self.domain)) if self.domain else alt.Scale(zero=False)


#: Measures by their name in a record's curve
MEASURES: dict[Measured, Measure] = {
    "accuracy": Measure("test accuracy in %"),
    "returns": Measure("mean return of an episode", 1.0, None),
    "backdoor": Measure("backdoor success in %"),
    "loss": Measure("test loss in nats", 1.0, None),
}


#: Horizontal axes of a curve, with their titles
AXES: dict[Axis, str] = {
    "round": "round",
    "steps": "steps of environments",
    "updates": "updates that reached the server",
    "seconds": "simulated seconds",
    "bytes_up": "bytes that the devices sent",
    "joules": "joules that the devices spent",
}


def axes(records: Sequence[Record]) -> list[Axis]:
    """The horizontal axes that the curves of all these records have."""
    held = [record["result"]["curve"] for record in records if record["status"] == "ok"]
    return [name for name in AXES if all(name in one for one in held)]


def curves(
    records: Sequence[Record], clean: Sequence[Record] = (), measure: Measured = "accuracy", over: Axis = "round"
) -> alt.LayerChart:
    """A measure over the training, one line per seed; in gray the models without attack, for comparison.

    Args:
        records: of one cell, one per seed.
        clean: of the same defense without attack.
        measure: a key of `MEASURES`.
        over: one of `axes`.
    """
    known = MEASURES[measure]
    columns = [over, measure, "seed"]
    shown = pd.DataFrame([point for record in records for point in points(record, measure, over)], columns=columns)
    gray = pd.DataFrame([point for record in clean for point in points(record, measure, over)], columns=columns)
    axis = alt.Y(f"{measure}:Q", title=known.title, scale=known.along)
    ticks = alt.Axis(tickMinStep=1) if over == "round" else alt.Axis(format="~s")
    along = alt.X(f"{over}:Q", title=AXES[over], axis=ticks, scale=alt.Scale(zero=False, nice=False))
    behind = (
        alt.Chart(gray)
        .mark_line(color=GRAY, strokeDash=[5, 3], opacity=0.8)
        .encode(x=along, y=axis, detail=alt.Detail("seed:N"), tooltip=tooltips(f"{over}:Q", f"{measure}:Q", "seed:N"))
    )
    lines = (
        alt.Chart(shown)
        .mark_line(point=len(shown) < 200)
        .encode(
            x=along,
            y=axis,
            color=alt.Color("seed:N", title="seed", sort=None, scale=alt.Scale(range=COLORS)),
            tooltip=tooltips(f"{over}:Q", f"{measure}:Q", "seed:N"),
        )
    )
    layers = [behind, lines] if len(gray) else [lines]
    chart: alt.LayerChart = alt.LayerChart(layer=layers).properties(height=280, width="container")
    return chart


def points(record: Record, measure: Measured, over: Axis = "round") -> list[dict[str, Any]]:
    """One point for each evaluation with a finite value of the measure."""
    scale, seed = MEASURES[measure].scale, str(record["seed"])
    return [{over: at, measure: scale * value, "seed": seed} for at, value in curve(record, measure, over)]


def classes(records: Sequence[Record]) -> alt.LayerChart:
    """The final accuracy of each class: the mean over seeds, with its 95 % interval."""
    table = pd.DataFrame(class_rows(records), columns=["class", "mean", "low", "high", "figure"])
    base = alt.Chart(table).encode(x=alt.X("class:N", title="class", sort=None, axis=alt.Axis(labelAngle=0)))
    axis = alt.Y("mean:Q", title="accuracy in %", scale=alt.Scale(domain=[0, 100]))
    bars = base.mark_bar(color=COLORS[0]).encode(
        y=axis, tooltip=tooltips("class:N", alt.Tooltip("figure:N", title="accuracy"))
    )
    rules = base.mark_rule(color=GRAY, strokeWidth=2).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    ends = base.mark_tick(orient="horizontal", color=GRAY, size=10, thickness=2)
    layers = [bars, rules, ends.encode(y=alt.Y("low:Q")), ends.encode(y=alt.Y("high:Q"))]
    chart: alt.LayerChart = alt.LayerChart(layer=layers).properties(height=280, width="container")
    return chart


def class_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each class, in percent; ``figure`` says if a class has no test examples."""
    results = [record["result"] for record in records if record["status"] == "ok"]
    rows: list[dict[str, Any]] = []
    for number, values in enumerate(zip(*(result["class_accuracy"] for result in results), strict=True)):
        known = [value for value in values if value is not None]
        row: dict[str, Any] = {"class": str(number), **dict.fromkeys(("mean", "low", "high"))}
        if not known:
            rows.append({**row, "figure": "no test examples"})
            continue
        accuracy = FIGURES["final_accuracy"]
        found = accuracy.estimate(known)
        ends = {"mean": found.mean, "low": found.low, "high": found.high}
        row |= {name: None if end is None else 100 * end for name, end in ends.items()}
        rows.append({**row, "figure": f"{accuracy.format_estimate(found)} %"})
    return rows
