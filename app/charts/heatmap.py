"""Heat maps: attacks by defenses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.results.breakdown import WORST
from fedguard.bench.results.matrix import MatrixEntry, matrix
from fedguard.metrics.figures import FIGURES, Metric

#: The empty row above the worst of the attacks
_GAP = " "

#: Height of a row, in pixels
ROW = 34

#: Color of squares without a value
_GRAY = "#bbbbbb"

#: Vertical offset of a number with an interval below it, and of the interval, in pixels
_UP, _DOWN = -6, 9

#: In pixels: least width of a column, for ``[50.9, 80.4]``; length at which a name is cut; width of a letter
COLUMN, _LONGEST, _LETTER = 72, 300, 6.6

#: Angle of the names above the columns, in degrees
_ANGLE = -40

_COLUMNS = ["attack", "by", "defense", "cell", "mean", "label", "spread", "figure", "seeds", "status", "reason", "dark"]


def heatmap(rows: Sequence[Mapping[str, Any]], figure: str) -> alt.LayerChart:
    """Attacks by defenses: the mean over seeds as color and number, with its 95 % interval.

    The last row, set apart, is the worst attack on each defense. Cells that were refused, failed or are missing are gray, with
    this word.

    Args:
        rows: rows of `Run.rows` for one combination of the other swept keys.
        figure: a key of `FIGURES`.
    """
    known = FIGURES[figure]
    places = positions(rows, figure)
    table = pd.DataFrame(places, columns=_COLUMNS)
    attacks = [name for name in dict.fromkeys(table["attack"]) if name != WORST]
    tail = [_GAP, WORST] if WORST in set(table["attack"]) else []
    plain: dict[str, Any] = {
        "ticks": False,
        "domain": False,
        "labelLimit": _LONGEST,
        "labelFontSize": 12,
        "labelFlush": False,
        "labelOverlap": False,
    }
    base = alt.Chart(table).encode(
        x=alt.X("defense:N", sort=None, title=None, axis=alt.Axis(orient="top", labelAngle=_ANGLE, **plain)),
        y=alt.Y("attack:N", title=None, scale=alt.Scale(domain=[*attacks, *tail]), axis=alt.Axis(**plain)),
        tooltip=tooltips(
            alt.Tooltip("by:N", title="attack"),
            "defense:N",
            alt.Tooltip("figure:N", title=known.title),
            "seeds:Q",
            "status:N",
            "reason:N",
        ),
    )
    color = alt.Color(
        "mean:Q",
        title=known.unit or None,
        # A gradient legend refers to the page's address, and disappears once this has changed; squares do not
        legend=alt.Legend(type="symbol", symbolType="square", symbolStrokeWidth=0, orient="bottom", tickCount=5),
        scale=alt.Scale(
            scheme="redyellowblue", clamp=True, reverse=not known.more_is_better, domain=_domain(known, places)
        ),
    )
    squares = (
        base.transform_filter("isValid(datum.mean)").mark_rect(stroke="white", strokeOpacity=0.4).encode(color=color)
    )
    blanks = base.transform_filter("!isValid(datum.mean)").mark_rect(fill=_GRAY, stroke="white", strokeOpacity=0.4)
    ink = alt.condition("datum.dark", alt.value("white"), alt.value("black"))
    raised = alt.expr(f"datum.spread ? {_UP} : 0")
    numbers = base.mark_text(fontSize=12, dy=raised).encode(text=alt.Text("label:N"), color=ink)
    spreads = (
        base.transform_filter("datum.spread")
        .mark_text(fontSize=10, dy=_DOWN)
        .encode(text=alt.Text("spread:N"), color=ink)
    )
    chart: alt.LayerChart = (squares + blanks + numbers + spreads).properties(
        height=alt.Step(ROW), width="container", autosize="fit-x"
    )
    return chart


def least_width(rows: Sequence[Mapping[str, Any]]) -> int:
    """Width in pixels below which numbers of neighboring columns would touch; a narrower page scrolls sideways."""
    attacks, defenses = (dict.fromkeys(str(row[key]) for row in rows) for key in ("attack", "defense"))
    beside = _length([*attacks, WORST]) + _length(list(defenses)[-1:]) * math.cos(math.radians(_ANGLE))
    return math.ceil(beside + COLUMN * len(defenses))


def _length(names: Sequence[str]) -> float:
    """Length of the longest of these names as a label, in pixels."""
    return min(_LONGEST, _LETTER * max(map(len, names), default=0))


def positions(rows: Sequence[Mapping[str, Any]], figure: str) -> list[dict[str, Any]]:
    """One row for each square, in the metric's unit; ``by`` is the attack if ``attack`` is `WORST`, ``cell`` its hash."""
    known = FIGURES[figure]
    block = matrix("", rows, [], figure).blocks.get("", {})
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["attack"], row["defense"]), []).append(row)
    places = [
        _place(attack, attack, defense, entry, found.get((attack, defense), []), known)
        for attack, entries in block.items()
        for defense, entry in entries.items()
    ]
    if len([attack for attack in block if attack != "none"]) > 1:
        places += _worst(places, known)
    low, high = _domain(known, places)
    return [{**place, "dark": _is_dark(place["mean"], low, high)} for place in places]


def _place(
    attack: str, by: str, defense: str, entry: MatrixEntry, seeds: Sequence[Mapping[str, Any]], figure: Metric
) -> dict[str, Any]:
    reasons = dict.fromkeys(str(row["reason"]) for row in seeds if row["status"] != "ok")
    place = {
        "attack": attack,
        "by": by,
        "defense": defense,
        "cell": seeds[0]["cell"] if seeds else None,
        "seeds": len(seeds),
        "censored": entry.estimate.censored if entry.estimate else 0,
        "status": entry.status or "not in the suite",
        "reason": "; ".join(reasons) or "-",
    }
    if entry.estimate is None:
        return {**place, "mean": None, "label": entry.text(), "spread": "", "figure": entry.text() or "-"}
    interval = figure.interval(entry.estimate)
    censored = entry.estimate.censored
    few = f" ({censored} of {len(seeds)} seeds did not get there)" if censored else " (too few seeds for an interval)"
    said = f"{entry.text()} {figure.unit}".strip() + ("" if interval else few)
    return {
        **place,
        "mean": figure.scale * entry.estimate.mean,
        "label": (">" if censored else "") + figure.text(entry.estimate.mean),
        "spread": interval,
        "figure": said,
    }


def _worst(places: Sequence[Mapping[str, Any]], figure: Metric) -> Iterator[dict[str, Any]]:
    """For each defense the worst attack by its mean, and out of how many; one that failed or was not run may be worse."""
    for defense in dict.fromkeys(place["defense"] for place in places):
        attacked = [place for place in places if place["defense"] == defense and place["attack"] != "none"]
        measured = [place for place in attacked if place["mean"] is not None]
        unknown = sum(place["status"] in ("failed", "missing") for place in attacked)
        sign = 1 if figure.more_is_better else -1
        worst = min(measured, key=lambda place: (-place["censored"], sign * place["mean"]), default=None)
        if worst is None:
            words = {place["status"]: place for place in reversed(attacked)}
            worst = words.get("failed") or words.get("missing") or attacked[0]
        said = f"the worst of {len(measured)} attacks that were measured"
        more = f"; {unknown} failed or not run, which may be worse" if unknown else ""
        mark = "*" if unknown and worst["mean"] is not None else ""
        yield {**worst, "attack": WORST, "label": worst["label"] + mark, "reason": said + more}


def _domain(figure: Metric, places: Sequence[Mapping[str, Any]]) -> list[float]:
    """The colors' range: 0 to 100 % for shares; for other metrics from 0, or the smallest value below it, to the largest."""
    means = [place["mean"] for place in places if place["mean"] is not None]
    return [0, 100] if figure.unit == "%" else [min([0.0, *means]), max([0.0, *means]) or 1.0]


def _is_dark(mean: float | None, low: float, high: float) -> bool:
    """Whether a square has a dark color of either end, on which white has a contrast of at least 4.5 to 1."""
    return mean is not None and not 0.1 < (mean - low) / (high - low) < 0.895
