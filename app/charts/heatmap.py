"""Attacks by defenses, as colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fedguard.bench.matrix import FIGURES, Figure
from fedguard.bench.stats import estimate


def heatmap(rows: Sequence[Mapping[str, Any]], figure: str) -> alt.LayerChart:
    """Attacks by defenses: the mean over seeds as colour and number, the interval in the tooltip."""
    table = pd.DataFrame(_positions(rows, figure))
    known = FIGURES[figure]
    order = {"attack": list(dict.fromkeys(table.attack)), "defense": list(dict.fromkeys(table.defense))}
    base = alt.Chart(table).encode(
        x=alt.X(
            "defense:N", sort=order["defense"], title=None, axis=alt.Axis(orient="top", labelAngle=-25, labelLimit=300)
        ),
        y=alt.Y("attack:N", sort=order["attack"], title=None, axis=alt.Axis(labelLimit=300)),
        tooltip=["attack", "defense", alt.Tooltip("figure:N", title=known.title), "seeds"],
    )
    colour = alt.Color(
        "mean:Q",
        title=known.unit or figure,
        scale=alt.Scale(
            scheme="redyellowgreen", clamp=True, reverse=not known.more_is_better, **_domain(known, table["mean"])
        ),
    )
    squares = base.mark_rect().encode(color=alt.condition("isValid(datum.mean)", colour, alt.value("#bbbbbb")))
    numbers = base.mark_text(color="black").encode(text="label:N")
    chart: alt.LayerChart = (squares + numbers).properties(height=alt.Step(34), width="container")
    return chart


def _domain(figure: Figure, means: pd.Series[Any]) -> dict[str, Any]:
    """The colours' range: 0 to 100 % for shares, from 0 to the largest for other figures."""
    return {"domain": [0, 100] if figure.unit == "%" else [0, float(means.max() or 1)]}


def _positions(rows: Sequence[Mapping[str, Any]], figure: str) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["attack"], row["defense"]), []).append(row)
    return [_position(attack, defense, seeds, figure) for (attack, defense), seeds in found.items()]


def _position(attack: str, defense: str, seeds: Sequence[Mapping[str, Any]], figure: str) -> dict[str, Any]:
    bad = [row["status"] for row in seeds if row["status"] != "ok"]
    values = [row[figure] for row in seeds if row[figure] is not None]
    known = FIGURES[figure]
    place = {"attack": attack, "defense": defense, "seeds": len(seeds)}
    if bad or not values:
        said = bad[0] if bad else "-"
        return {**place, "mean": None, "label": said, "figure": said}
    found = estimate(values)
    label = known.text(found.mean / known.scale)
    spread = "" if found.half_width is None else f" ± {known.text(found.half_width / known.scale)}"
    return {**place, "mean": found.mean, "label": label, "figure": f"{label}{spread} {known.unit}".strip()}
