"""Charts from rows: pure functions, so that a report can draw the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fedguard.bench.matrix import FIGURES
from fedguard.bench.record import Record
from fedguard.bench.stats import estimate


def heatmap(rows: Sequence[Mapping[str, Any]], figure: str) -> alt.LayerChart:
    """Attacks by defenses: the mean over seeds as colour and number, the interval in the tooltip."""
    table = pd.DataFrame(_positions(rows, figure))
    better = FIGURES[figure][1]
    order = {"attack": list(dict.fromkeys(table.attack)), "defense": list(dict.fromkeys(table.defense))}
    base = alt.Chart(table).encode(
        x=alt.X(
            "defense:N", sort=order["defense"], title=None, axis=alt.Axis(orient="top", labelAngle=-25, labelLimit=300)
        ),
        y=alt.Y("attack:N", sort=order["attack"], title=None, axis=alt.Axis(labelLimit=300)),
        tooltip=["attack", "defense", alt.Tooltip("figure:N", title=FIGURES[figure][0]), "seeds"],
    )
    colour = alt.Color(
        "mean:Q",
        title="%",
        scale=alt.Scale(scheme="redyellowgreen", domain=[0, 100], clamp=True, reverse=not better),
    )
    squares = base.mark_rect().encode(color=alt.condition("isValid(datum.mean)", colour, alt.value("#bbbbbb")))
    numbers = base.mark_text(color="black").encode(text="label:N")
    chart: alt.LayerChart = (squares + numbers).properties(height=alt.Step(34), width="container")
    return chart


def curves(records: Sequence[Record]) -> alt.Chart:
    """Test accuracy over the rounds, one line per seed."""
    points = [
        {"round": round, "accuracy": 100 * accuracy, "seed": str(record["seed"])}
        for record in records
        for round, accuracy in zip(
            record["result"]["curve"]["round"], record["result"]["curve"]["accuracy"], strict=True
        )
    ]
    chart: alt.Chart = (
        alt.Chart(pd.DataFrame(points))
        .mark_line()
        .encode(
            x=alt.X("round:Q", title="round"),
            y=alt.Y("accuracy:Q", title="test accuracy in %", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color("seed:N", title="seed"),
            tooltip=["round", "accuracy", "seed"],
        )
        .properties(height=320, width="container")
    )
    return chart


def _positions(rows: Sequence[Mapping[str, Any]], figure: str) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["attack"], row["defense"]), []).append(row)
    return [_position(attack, defense, seeds, figure) for (attack, defense), seeds in found.items()]


def _position(attack: str, defense: str, seeds: Sequence[Mapping[str, Any]], figure: str) -> dict[str, Any]:
    bad = [row["status"] for row in seeds if row["status"] != "ok"]
    values = [row[figure] for row in seeds if row[figure] is not None]
    place = {"attack": attack, "defense": defense, "seeds": len(seeds)}
    if bad or not values:
        said = bad[0] if bad else "-"
        return {**place, "mean": None, "label": said, "figure": said}
    found = estimate(values)
    spread = "" if found.half_width is None else f" ± {found.half_width:.1f}"
    return {**place, "mean": found.mean, "label": f"{found.mean:.1f}", "figure": f"{found.mean:.1f}{spread} %"}
