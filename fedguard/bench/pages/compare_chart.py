"""The forest plot of a comparison: B minus A by cell with intervals around zero, a panel for each defense; and its table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedguard.bench.pages.blocks import SYMBOLS, Bar, Chart, Heading, Key, TableBlock
from fedguard.bench.results.comparison import LEVEL, Comparison, Difference
from fedguard.bench.results.places import setting
from fedguard.metrics.figures import FIGURES, Metric
from fedguard.metrics.stats import ENOUGH

#: Color, shape and meaning of each result of a cell; the shape alone tells them apart, too
_KINDS = {
    "better": ("green", "triangle-up", "better after Holm"),
    "worse": ("orange", "triangle-down", "worse after Holm"),
    "alone": ("violet", "diamond", "p < .05 for this cell alone: try it on fresh seeds"),
    "undecided": ("gray", "circle", "not separated"),
    "identical": ("gray", "square", "identical"),
}

#: Width of the page, of a narrow one, most panels in a line, pixels of a character of a label
_WIDE, _NARROW, _PANELS, _CHARACTER = 1120, 318, 6, 7.2

_NOTE = (
    f"The interval is of the cell alone; the color is by the p-value after Holm over all that is compared, at {LEVEL:g}: the "
    f"chance of any false find is below {100 * LEVEL:.0f} %. What many cells share, the test over all of them finds. This is "
    "exploration: a verdict on a change comes from the gate, on fresh seeds."
)

_Layer = dict[str, Any]


def format_signed(known: Metric, value: float) -> str:
    """``+3.1``, in the metric's unit, with a true minus."""
    text = known.text(value)
    return text.replace("-", "\N{MINUS SIGN}") if text.startswith("-") else f"+{text}"


def settings_of(found: Sequence[Difference]) -> list[str]:
    """The combinations of the other swept keys, the one with the largest difference first."""
    return list(dict.fromkeys(_setting(one) for one in found))


def chart(found: Sequence[Difference], chosen: str, whole: Comparison) -> Chart:
    """The differences of one metric.

    Args:
        found: of all settings, the largest first.
        chosen: the setting to draw.
    """
    known = FIGURES[found[0].figure]
    drawn = [one for one in found if one.paired and _setting(one) == chosen]
    limit = _limit(drawn, known)
    rows = [_row(one, known, limit) for one in drawn]
    kinds = [kind for kind in _KINDS if any(row["kind"] == kind for row in rows)]
    seeds = sorted({len(one.seeds) for one in drawn})
    of_seeds = f"Mean over {' to '.join(map(str, seeds))} paired seed{'s' * (seeds != [1])}"
    level = ", 95 % intervals" if seeds[-1] >= ENOUGH else ""
    cut = any(row["cut"] for row in rows)
    unit = known.unit_of_differences
    named = f"{known.title}, B minus A{f', in {unit}' if unit else ''}"
    right = "Right of zero B is better" + ("" if known.more_is_better else " (the axis is reversed)")
    return Chart(
        _facet(rows, kinds, limit, known, narrow=False),
        _facet(rows, kinds, limit, known, narrow=True),
        f"{named}: {_count(rows, kinds)}.",
        table(found, whole),
        f"{named}{f' ({chosen})' if chosen else ''}",
        f"{of_seeds}{level}{f', cut at ±{known.text(limit / known.scale)}' if cut else ''}. {right}.",
        _NOTE,
        [Key(SYMBOLS[_KINDS[kind][1]], _KINDS[kind][0], _KINDS[kind][2]) for kind in kinds],
    )


def table(found: Sequence[Difference], whole: Comparison) -> TableBlock:
    """One row for each position, what changed most first; identical ones are counted."""
    known = FIGURES[found[0].figure]
    told = [one for one in found if one.direction != "identical"]
    limit = _limit([one for one in told if one.paired], known)
    unit = f", {known.unit}" if known.unit else ""
    names = [
        "cell",
        f"A{unit}",
        f"B{unit}",
        f"B minus A, {known.unit_of_differences}".rstrip(", "),
        "result",
        "p, Holm",
    ]
    rows = [
        [
            _cell(one),
            known.text(one.a.mean),
            known.text(one.b.mean),
            _difference(one, known),
            "no common seed" if one.paired is None else _kind(one).replace("alone", "p < .05 alone"),
            "" if one.p_adjusted is None else f"{one.p_adjusted:.2g}",
        ]
        for one in told
    ]
    same = len(found) - len(told)
    return TableBlock(
        [Heading(name, number=name not in ("cell", "result")) for name in names],
        rows,
        f"{known.title}, {whole.b} minus {whole.a}: means over common seeds, what changed most first",
        bars=[_bar(one, known) for one in told],
        axis=(-limit, limit),
        legend="● B minus A   ─ 95 % interval",
        compare=f"{same} of {len(found)} positions are identical" if same else "",
    )


def _cell(one: Difference) -> str:
    attack = "no attack" if one.swept["attack"] == "none" else one.swept["attack"]
    return ", ".join(part for part in (f"{attack} against {one.swept['defense']}", _setting(one)) if part)


def _setting(one: Difference) -> str:
    return setting(one.swept, [key for key in one.swept if key not in ("attack", "defense")])


def _ends(one: Difference) -> tuple[float, float] | None:
    """The 95 % interval of a cell alone; None for two pairs or fewer, or without spread."""
    half = one.paired.half_width if one.paired else None
    if one.paired is None or not half or len(one.seeds) < ENOUGH:
        return None
    return one.paired.mean - half, one.paired.mean + half


def _difference(one: Difference, known: Metric) -> str | None:
    if one.paired is None:
        return None
    ends = _ends(one)
    said = f" [{format_signed(known, ends[0])}, {format_signed(known, ends[1])}]" if ends else ""
    return f"{format_signed(known, one.paired.mean)}{said}"


def _bar(one: Difference, known: Metric) -> Bar | None:
    if one.paired is None:
        return None
    low, high = _ends(one) or (None, None)
    return Bar(
        known.scale * one.paired.mean,
        None if low is None else known.scale * low,
        None if high is None else known.scale * high,
        0.0,
    )


def _kind(one: Difference) -> str:
    return "alone" if one.suggestive else one.direction


def _count(rows: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> str:
    counts = (f"{sum(row['kind'] == kind for row in rows)} {_KINDS[kind][2]}" for kind in kinds)
    return f"{len(rows)} cells: {', '.join(counts)}"


def _limit(found: Sequence[Difference], known: Metric) -> float:
    """The end of the axis: all intervals are on it, except far longer ones than the largest difference."""
    means = [abs(known.scale * one.paired.mean) for one in found if one.paired]
    ends = [abs(known.scale * end) for one in found for end in _ends(one) or ()]
    most = max(means, default=0.0)
    wanted = max(most * 1.15, min(max(ends, default=0.0), 1.6 * most))
    if wanted <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(wanted)) / 2
    return math.ceil(wanted / step) * step


def _row(one: Difference, known: Metric, limit: float) -> dict[str, Any]:
    assert one.paired is not None
    mean = known.scale * one.paired.mean
    low, high = (known.scale * end for end in _ends(one) or (one.paired.mean, one.paired.mean))
    return {
        "defense": one.swept["defense"],
        "attack": "no attack" if one.swept["attack"] == "none" else one.swept["attack"],
        "at": mean,
        "low": max(-limit, low),
        "high": min(limit, high),
        "cut": low < -limit or high > limit,
        "label": format_signed(known, one.paired.mean),
        "kind": _kind(one),
        "said": one.words(),
    }


def _facet(
    rows: Sequence[Mapping[str, Any]], kinds: Sequence[str], limit: float, known: Metric, narrow: bool
) -> _Layer:
    """A panel for each defense with shared rows; on a narrow page the panels are stacked, with names above the rows."""
    attacks, defenses = (list(dict.fromkeys(row[key] for row in rows)) for key in ("attack", "defense"))
    attacks.sort(key=lambda name: name != "no attack")
    columns = 1 if narrow else min(_PANELS, len(defenses))
    names = 0 if narrow else min(260.0, _CHARACTER * max(map(len, attacks)) + 10)
    width = _NARROW if narrow else min(420.0, (_WIDE - names) / columns - 20)
    header = {"title": None, "labelColor": "var(--ink)", "labelFontSize": 13, "labelFontWeight": 600, "labelAnchor": "start",
              "labelLimit": width}  # fmt: skip
    return {
        "data": {"values": list(rows)},
        "facet": {"field": "defense", "type": "nominal", "sort": defenses, "header": header},
        "columns": columns,
        "spacing": {"row": 22, "column": 20},
        "spec": {"width": width, "height": {"step": 44 if narrow else 30},
                 "layer": _layers(attacks, kinds, limit, known, names, narrow)},
    }  # fmt: skip


def _layers(
    attacks: Sequence[str], kinds: Sequence[str], limit: float, known: Metric, names: float, narrow: bool
) -> list[_Layer]:
    axis = {"title": None, "labelFontSize": 13, "labelColor": "var(--ink)", "labelLimit": names}
    y: _Layer = {"field": "attack", "type": "nominal", "sort": None, "scale": {"domain": list(attacks)}}
    y["axis"] = None if narrow else axis
    colors = _by_kind(kinds, [f"var(--{_KINDS[kind][0]})" for kind in kinds])
    shapes = _by_kind(kinds, [_KINDS[kind][1] for kind in kinds])
    at, low, down = _x("at", limit, known), _x("low", limit, known), 8 if narrow else 5
    tooltip = [{"field": name, "type": "nominal"} for name in ("attack", "defense", "said")]
    zero = {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "color": "var(--faint)", "strokeWidth": 1.2},
        "encoding": {"x": {"datum": 0}},
    }
    bar = {"type": "rule", "strokeWidth": 5, "opacity": 0.4, "yOffset": down}
    point = {"type": "point", "filled": True, "size": 70, "opacity": 1, "yOffset": down}
    layers: list[_Layer] = [
        zero,
        {"mark": bar, "encoding": {"y": y, "x": low, "x2": {"field": "high"}, "color": colors}},
        {"mark": point, "encoding": {"y": y, "x": at, "color": colors, "shape": shapes, "tooltip": tooltip}},
    ]
    if not narrow:
        return [*layers, _text(y, "label", at, dy=-6)]
    left = _text(y, "attack", {"value": 0}, align="left", dy=-12)
    return [*layers, left, _text(y, "label", {"value": _NARROW}, align="right", dy=-12)]


def _by_kind(kinds: Sequence[str], values: Sequence[str]) -> _Layer:
    scale = {"domain": list(kinds), "range": list(values)}
    return {"field": "kind", "type": "nominal", "legend": None, "scale": scale}


def _text(y: _Layer, field: str, x: _Layer, **mark: Any) -> _Layer:
    return {"mark": {"type": "text", "fontSize": 12, **mark}, "encoding": {"y": y, "x": x, "text": {"field": field}}}


def _x(field: str, limit: float, known: Metric) -> _Layer:
    step = limit / 2
    axis = {"title": None, "values": [-limit, -step, 0, step, limit], "labelFlush": True,
            "labelExpr": "(datum.value > 0 ? '+' : datum.value < 0 ? '\N{MINUS SIGN}' : '') + abs(datum.value)"}  # fmt: skip
    scale = {"domain": [-limit, limit], "nice": False, "reverse": not known.more_is_better}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}
