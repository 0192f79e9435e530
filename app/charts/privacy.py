"""Cost of an epsilon and remaining leakage, membership inference, and audits beside claims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from fedguard.app.charts.colors import COLORS, GRAY
from fedguard.app.charts.tooltips import tooltips
from fedguard.bench.audits.cells import CellAudit
from fedguard.bench.results.disclosure import MembershipResult
from fedguard.bench.results.trilemma import LEAKAGE, Point, Trilemma, WorstAttack
from fedguard.bench.terminal.plot import is_logarithmic
from fedguard.metrics.figures import FIGURES, SHARE
from fedguard.metrics.stats import estimate


def frontier(trilemma: Trilemma, units: Mapping[str, str] | None = None) -> alt.VConcatChart:
    """Accuracy under the worst attack over epsilon, and each metric of leakage below; runs without guarantee on the right.

    Bars are 95 % intervals over seeds. Defenses with one epsilon are drawn slightly apart.

    Args:
        units: by setting, the unit of privacy of its epsilon; epsilons of different units are not joined by a line.
    """
    figures = [one for one in ("final_accuracy", *LEAKAGE) if any(_worst(point, one) for point in trilemma.points)]
    positions = _positions([point.epsilon for point in trilemma.points])
    defenses = list(dict.fromkeys(point.defense for point in trilemma.points))
    rows = pd.DataFrame(_frontier_rows(trilemma.points, figures, positions, defenses, units or {}))
    color = alt.Color("defense:N", sort=defenses, scale=alt.Scale(range=COLORS), title="defense")
    panels = [_panel(rows[rows.figure == figure], figure, positions, color) for figure in figures]
    chart: alt.VConcatChart = alt.vconcat(*panels).properties(autosize="pad")
    return chart


def _panel(
    rows: pd.DataFrame, figure: str, positions: Mapping[float | None, float], color: alt.Color
) -> alt.LayerChart:
    known = FIGURES[figure]
    low, high = min(positions.values()), max(positions.values())
    axis = alt.Axis(
        values=sorted(positions.values()),
        labelExpr=_labels(positions),
        grid=False,
    )
    along = alt.X(
        "x:Q",
        title="epsilon, log scale; at the right without guarantee",
        scale=alt.Scale(type="log", domain=[low / 1.4, high * 1.4], nice=False),
        axis=axis,
    )
    title = "final accuracy under the worst attack in %" if figure == "final_accuracy" else known.heading
    upwards = alt.Scale(domain=[0, 100]) if figure == "final_accuracy" else alt.Scale(zero=known.unit == "%")
    base = alt.Chart(rows).encode(
        x=along,
        color=color,
        tooltip=tooltips(
            alt.Tooltip("setting:N"),
            alt.Tooltip("defense:N"),
            alt.Tooltip("hidden:N", title="epsilon"),
            alt.Tooltip("attack:N", title="worst attack"),
            alt.Tooltip("said:N", title=known.title),
        ),
    )
    lines = (
        base.transform_filter("datum.proven")
        .mark_line()
        .encode(y=alt.Y("mean:Q", title=None), detail=alt.Detail("unit:N"))
    )
    gray = alt.Legend(symbolFillColor=GRAY, symbolStrokeColor=GRAY)
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        y=alt.Y("mean:Q", title=None, scale=upwards), shape=alt.Shape("unit:N", title="hidden", legend=gray)
    )
    bars = base.mark_rule(clip=True).encode(y=alt.Y("low:Q", title=None, scale=upwards), y2=alt.Y2("high:Q"))
    return alt.LayerChart(layer=[*_apart(positions), bars, lines, points]).properties(
        title=title[0].upper() + title[1:], height=220, width=640
    )


def _apart(positions: Mapping[float | None, float]) -> list[alt.Chart]:
    """A line between the points with and without guarantee."""
    known = [place for value, place in positions.items() if value is not None]
    if None not in positions or not known:
        return []
    between = pd.DataFrame([{"x": math.sqrt(max(known) * positions[None])}])
    return [alt.Chart(between).mark_rule(strokeDash=[4, 4], color=GRAY).encode(x=alt.X("x:Q"))]


def _positions(epsilons: Sequence[float | None]) -> dict[float | None, float]:
    """The position of each epsilon on a logarithmic axis: no guarantee to the right of all, and 0 to the left."""
    known = sorted({value for value in epsilons if value})
    step = max(4.0, (known[-1] / known[0]) ** (1 / len(known))) if known else 4.0
    found: dict[float | None, float] = {value: value for value in known}
    if 0.0 in epsilons:
        found[0.0] = (known[0] if known else 1.0) / step
    if None in epsilons:
        found[None] = max(found.values(), default=1 / step) * step
    return found


def _labels(positions: Mapping[float | None, float]) -> str:
    """A Vega expression for the label at each position of the axis."""
    words = {value: word for value, word in ((None, "none"), (0.0, "0")) if value in positions}
    tests = [f"abs(datum.value / {positions[value]} - 1) < 1e-6 ? '{word}' : " for value, word in words.items()]
    return "".join(tests) + "format(datum.value, '.3~g')"


def _frontier_rows(
    points: Sequence[Point],
    figures: Sequence[str],
    positions: Mapping[float | None, float],
    defenses: Sequence[str],
    units: Mapping[str, str],
) -> Iterator[dict[str, Any]]:
    span = max(positions.values()) / min(positions.values())
    for point in points:
        offset = span ** (0.012 * (defenses.index(point.defense) - (len(defenses) - 1) / 2))
        unit = units.get(point.setting, "one epsilon") if point.epsilon is not None else "nothing"
        for figure in figures:
            worst = _worst(point, figure)
            if worst is None:
                continue
            known, found = FIGURES[figure], worst.estimate
            ends = (found.mean, found.low, found.high)
            mean, low, high = (known.scale * (found.mean if end is None else end) for end in ends)
            spread = known.interval(found) or "too few seeds for an interval"
            yield {
                "figure": figure,
                "setting": point.setting,
                "defense": point.defense,
                "unit": unit,
                "proven": point.epsilon is not None,
                "hidden": "no guarantee" if point.epsilon is None else f"{point.epsilon:.4g} ({unit})",
                "x": positions[point.epsilon] * offset,
                "attack": worst.attack,
                "mean": mean,
                "low": low,
                "high": high,
                "said": f"{known.text(found.mean)} {known.unit} ({spread})",
            }


def _worst(point: Point, figure: str) -> WorstAttack | None:
    return point.accuracy if figure == "final_accuracy" else point.leakage.get(figure)


def roc(targets: Sequence[MembershipResult]) -> alt.FacetChart:
    """True over false positive rates of membership attacks, both axes logarithmic, one panel for each attack and defense.

    Faint lines are single targets. The strong line is the mean over seeds of their mean, with its 95 % interval. The dashed
    line is chance. A rate of 0 is not on such an axis.
    """
    rows = list(_roc_rows(targets))
    seen = [row[axis] for row in rows for axis in ("false", "true") if row[axis] > 0]
    floor = 10.0 ** math.floor(math.log10(min(seen, default=0.01)))
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    rows += [{"panel": panel, "kind": "chance", "false": x, "true": x} for panel in panels for x in (floor, 1.0)]
    frame = pd.DataFrame(rows)
    frame["low"] = frame["low"].clip(lower=floor)
    scale = alt.Scale(type="log", domain=[floor, 1], clamp=True, nice=False)
    x = alt.X("false:Q", title="false positive rate", scale=scale, axis=alt.Axis(format="~%", tickCount=4))
    y = alt.Y("true:Q", title="true positive rate", scale=scale, axis=alt.Axis(format="~%", tickCount=4))
    color = alt.Color(
        "setting:N",
        title="setting",
        sort=list(dict.fromkeys(target.place.setting for target in targets)),
        scale=alt.Scale(range=COLORS),
        legend=alt.Legend(orient="bottom", columns=1, labelLimit=900, symbolOpacity=1),
    )
    base = alt.Chart().encode(x=x, y=y)
    above = base.transform_filter("datum.true > 0 && datum.false > 0")
    layers = [
        base.transform_filter("datum.kind == 'chance'").mark_line(strokeDash=[4, 4], color=GRAY),
        above.transform_filter("datum.kind == 'target'")
        .mark_line(opacity=0.2, strokeWidth=1)
        .encode(color=color, detail=alt.Detail("line:N")),
        above.transform_filter("datum.kind == 'mean' && isValid(datum.high)")
        .mark_area(opacity=0.08)
        .encode(y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q"), color=color),
        above.transform_filter("datum.kind == 'mean'")
        .mark_line(strokeWidth=2.5)
        .encode(
            color=color,
            tooltip=tooltips(
                "setting:N", alt.Tooltip("false:Q", format=".2%"), alt.Tooltip("said:N", title="true positives")
            ),
        ),
    ]
    chart: alt.FacetChart = (
        alt.layer(*layers, data=frame)
        .properties(width=420, height=320)
        .facet(facet=alt.Facet("panel:N", title=None, sort=panels), columns=2)
    )
    return chart


def _roc_rows(targets: Sequence[MembershipResult]) -> Iterator[dict[str, Any]]:
    """The points of each target, and the mean at evenly spaced rates."""
    alike: dict[tuple[str, str], dict[int, list[list[list[float]]]]] = {}
    for number, target in enumerate(targets):
        place, curve = target.place, target.score["roc"]
        panel = f"{place.attack} against {place.defense}"
        if curve:
            alike.setdefault((panel, place.setting), {}).setdefault(place.seed, []).append(curve)
        for false, true in curve:
            yield {
                "panel": panel, "kind": "target", "setting": place.setting, "line": number, "false": false, "true": true,
            }  # fmt: skip
    for (panel, setting), seeds in alike.items():
        for false in _even(curve for curves in seeds.values() for curve in curves):
            means = [math.fsum(_at(curve, false) for curve in curves) / len(curves) for curves in seeds.values()]
            found = estimate(means, SHARE)
            few = " (too few seeds for an interval)" if found.low is None else ""
            yield {
                "panel": panel,
                "kind": "mean",
                "setting": setting,
                "false": false,
                "true": found.mean,
                "low": math.nan if found.low is None else found.low,
                "high": math.nan if found.high is None else found.high,
                "said": f"{FIGURES['membership_tpr'].format_estimate(found)} %{few}",
            }


def _even(curves: Iterator[list[list[float]]], points: int = 25) -> list[float]:
    """False positive rates from the coarsest resolution of the curves to 1, evenly spaced on a logarithmic axis."""
    start = max(next((false for false, _ in curve if false > 0), 1.0) for curve in curves)
    return [start ** (1 - number / (points - 1)) for number in range(points)]


def _at(curve: Sequence[Sequence[float]], false: float) -> float:
    """The true positive rate at a false positive rate; between points, by randomizing between their thresholds."""
    return float(np.interp(false, [x for x, _ in curve], [y for _, y in curve]))


def bounds(audits: Sequence[CellAudit]) -> alt.LayerChart:
    """For each audit the lower bound as a bar, the accountant's epsilon as a dot, and the verdict as a word.

    A bar beyond its dot contradicts the claim. An infinite bound, and one without a claim, are written as text.
    """
    rows = [_epsilon_row(name, one) for name, one in zip(audit_names(audits), audits, strict=True)]
    values = [row[key] for row in rows for key in ("bound", "claim") if row[key]]
    spread = bool(values) and is_logarithmic(values)
    room = 1.35 * max(values, default=1.0)  # for the word behind the last dot
    scale = alt.Scale(type="symlog" if spread else "linear", domain=[0, room], nice=False)
    base = alt.Chart(pd.DataFrame(rows)).encode(
        y=alt.Y("audit:N", title=None, sort=None, axis=alt.Axis(labelLimit=400)),
        tooltip=tooltips("audit:N", "verdict:N", "words:N"),
    )
    title = "epsilon of the audited rounds" + (", symmetric log scale" if spread else "")
    verdicts = alt.Scale(
        domain=["consistent", "violated", "not judged", "no guarantee claimed"],
        range=[COLORS[0], COLORS[3], COLORS[1], GRAY],
    )
    color = alt.Color("verdict:N", scale=verdicts, legend=None)
    bars = base.mark_bar(height=10).encode(x=alt.X("bound:Q", title=title, scale=scale), color=color)
    dots = base.mark_point(filled=True, size=130, shape="diamond", color=GRAY, opacity=1).encode(
        x=alt.X("claim:Q", scale=scale)
    )
    words = base.mark_text(align="left", dx=12, fontWeight="bold").encode(
        x=alt.X("end:Q", scale=scale), text=alt.Text("said:N"), color=color
    )
    return alt.LayerChart(layer=[bars, dots, words]).properties(height=60 + 36 * len(rows), width="container")


def audit_names(audits: Sequence[CellAudit]) -> list[str]:
    """The subject of each audit; equal ones with a number."""
    subjects = [one.audit.subject for one in audits]
    return [
        subject if subjects.count(subject) == 1 else f"{subject} ({subjects[: number + 1].count(subject)})"
        for number, subject in enumerate(subjects)
    ]


def _epsilon_row(name: str, one: CellAudit) -> dict[str, Any]:
    bound = one.audit.bound.epsilon if math.isfinite(one.audit.bound.epsilon) else None
    return {
        "audit": name,
        "bound": bound,
        "claim": one.audit.claimed,
        "end": max(bound or 0.0, one.audit.claimed or 0.0),
        "verdict": one.audit.verdict,
        "said": one.audit.verdict + ("" if bound is not None else ", bound without end"),
        "words": one.audit.words,
    }
