"""The charts of the gate: each cell against its baseline with the margin, and every verdict so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fedguard.bench.gate.verdict import CANNOT_JUDGE, PASSED, REGRESSED, WORDS, GateVerdict, Judgment
from fedguard.bench.pages.blocks import SYMBOLS, Bar, Chart, Heading, Key, TableBlock
from fedguard.bench.pages.compare_chart import format_signed
from fedguard.metrics.figures import FIGURES, Metric
from fedguard.metrics.stats import p_text

#: Symbol, color, and shape of each verdict: none is told by its color alone
MARKS = {
    "improved": ("▲", "green", "triangle-up"),
    "identical": ("=", "gray", "square"),
    "pass": ("✓", "gray", "circle"),
    "inconclusive": ("?", "warn", "diamond"),
    "regressed": ("▼", "bad", "triangle-down"),
    "missing": ("x", "warn", "cross"),
}
_OUTCOMES = {PASSED: ("✓ passed", "green"), REGRESSED: ("▼ regressed", "bad"), CANNOT_JUDGE: ("? cannot judge", "warn")}

#: Rows of cells that pass in the chart of one verdict and in the history; columns of the history, wide and narrow
_ROWS, _CELLS, _COLUMNS, _FEW = 12, 24, 8, 3

#: Judgments that need attention first
_ORDER = ("regressed", "missing", "inconclusive", "improved", "pass", "identical")

_WIDE, _NARROW, _CHARACTER = 1120, 318, 7.2

_Layer = dict[str, Any]


def against_baseline(found: Sequence[Judgment]) -> Chart:
    """The judgments of one metric: what changed or needs attention, and of the others those with the largest drops."""
    known = FIGURES[found[0].figure]
    measured = [one for one in found if one.drop is not None and one.before is not None and one.after is not None]
    measured.sort(key=lambda one: (_ORDER.index(one.verdict), not one.lost_seed, -(one.drop or 0.0)))
    shown = [one for number, one in enumerate(measured) if _loud(one) or number < _ROWS]
    rest = len(found) - len(shown)
    rows = [_row(one, known) for one in shown]
    domain = _domain(rows, known)
    words = [word for word in reversed(WORDS) if any(row["verdict"] == word for row in rows)]
    keys = [Key(SYMBOLS[MARKS[word][2]], MARKS[word][1], f"now: {word}") for word in words if MARKS[word][2] in SYMBOLS]
    counts = Counter(one.verdict for one in found)
    counted = ", ".join(f"{counts[word]} {word}" for word in reversed(WORDS) if counts[word])
    return Chart(
        _bars(rows, domain, words, known, narrow=False),
        _bars(rows, domain, words, known, narrow=True),
        f"{known.title} against the baseline: {counted}.",
        _table(shown, rows, domain, known, rest),
        f"{known.title[0].upper()}{known.title[1:]} against the baseline",
        "Upright line: the baseline; gray: the margin; mark: now.",
        f"{rest} more cells are within their margin or have no value: see all judgments." if rest else "",
        [Key("bar", "gray", "margin"), *keys],
    )


def _loud(one: Judgment) -> bool:
    return one.verdict not in ("pass", "identical") or bool(one.lost_seed)


def _row(one: Judgment, known: Metric) -> dict[str, Any]:
    assert one.before is not None and one.after is not None and one.drop is not None
    sign = 1 if known.more_is_better else -1
    change = "the same to the last bit" if one.verdict == "identical" else format_signed(known, -sign * one.drop)
    p = f", {p_text(one.p_value)} on {len(one.confirmed_on)} fresh seeds" if one.p_value is not None else ""
    return {
        "cell": one.label,
        "verdict": one.verdict,
        "before": known.scale * one.before,
        "after": known.scale * one.after,
        "limit": known.scale * (one.before - sign * (one.margin or 0.0)),
        "change": change,
        "label": f"{MARKS[one.verdict][0]} {change}{p}",
    }


def _domain(rows: Sequence[Mapping[str, Any]], known: Metric) -> tuple[float, float]:
    values = [row[key] for row in rows for key in ("before", "after", "limit")] or [0.0, 1.0]
    low, high = min(values), max(values)
    if known.unit == "%" and low >= 0:
        return 0.0, 100.0
    room = 0.08 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def _table(
    shown: Sequence[Judgment], rows: Sequence[Mapping[str, Any]], domain: tuple[float, float], known: Metric, rest: int
) -> TableBlock:
    unit = f", {known.unit}" if known.unit else ""
    change = f"change, {known.unit_of_differences}".rstrip(", ")
    names = ["cell", "verdict", f"baseline{unit}", f"now{unit}", change, "margin", "p"]
    cells = [
        [
            one.label,
            f"{MARKS[one.verdict][0]} {one.verdict}",
            known.text(one.before or 0.0),
            known.text(one.after or 0.0),
            row["change"],
            "" if one.margin is None else known.text(one.margin),
            "" if one.p_value is None else f"{one.p_value:.2g}",
        ]
        for one, row in zip(shown, rows, strict=True)
    ]
    return TableBlock(
        [Heading(name, number=name not in ("verdict", "cell")) for name in names],
        cells,
        f"{known.title[0].upper()}{known.title[1:]} of each cell against the baseline",
        bars=[Bar(row["after"], None, None, row["before"]) for row in rows],
        axis=domain,
        legend="● now   ○ baseline",
        compare=f"{rest} more within their margin, or without a value" if rest else "",
    )


def _bars(
    rows: Sequence[Mapping[str, Any]], domain: tuple[float, float], words: Sequence[str], known: Metric, narrow: bool
) -> _Layer:
    names = min(340.0, _CHARACTER * max((len(row["cell"]) for row in rows), default=0) + 10)
    width = _NARROW if narrow else _WIDE - names
    span, down = domain[1] - domain[0], 9 if narrow else 6
    placed = []
    for row in rows:
        half = span * len(row["label"]) * _CHARACTER / width / 2
        placed.append({**row, "at": min(domain[1] - half, max(domain[0] + half, row["after"]))})
    axis = {"title": None, "labelFontSize": 13, "labelColor": "var(--ink)", "labelLimit": names}
    y: _Layer = {"field": "cell", "type": "nominal", "sort": None, "axis": None if narrow else axis}
    color = _scale(words, [f"var(--{MARKS[word][1]})" for word in words])
    shape = _scale(words, [MARKS[word][2] for word in words])

    def x(field: str) -> _Layer:
        scale = {"domain": list(domain), "nice": False, "zero": False}
        return {
            "field": field,
            "type": "quantitative",
            "scale": scale,
            "axis": {"title": known.heading, "tickCount": 6},
        }

    margin = {"type": "bar", "height": 16, "opacity": 0.22, "color": "var(--gray)", "yOffset": down}
    rule = {"type": "rule", "strokeWidth": 3, "yOffset": down}
    tick = {"type": "tick", "thickness": 2.5, "size": 18, "color": "var(--ink)", "yOffset": down}
    point = {"type": "point", "filled": True, "size": 95, "opacity": 1, "yOffset": down}
    text = {"type": "text", "fontSize": 12, "dy": -9, "baseline": "middle"}
    name = {"type": "text", "align": "left", "dy": -25, "fontSize": 13}
    layers: list[_Layer] = [
        {"mark": margin, "encoding": {"y": y, "x": x("limit"), "x2": {"field": "before"}}},
        {"mark": rule, "encoding": {"y": y, "x": x("before"), "x2": {"field": "after"}, "color": color}},
        {"mark": tick, "encoding": {"y": y, "x": x("before")}},
        {"mark": point, "encoding": {"y": y, "x": x("after"), "color": color, "shape": shape}},
        {"mark": text, "encoding": {"y": y, "x": x("at"), "text": {"field": "label"}}},
    ]
    if narrow:
        layers.append({"mark": name, "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "cell"}}})
    return {"data": {"values": placed}, "width": width, "height": {"step": 64 if narrow else 40}, "layer": layers}


def _scale(domain: Sequence[str], values: Sequence[str]) -> _Layer:
    scale = {"domain": list(domain), "range": list(values)}
    return {"field": "verdict", "type": "nominal", "legend": None, "scale": scale}


def history(found: Sequence[GateVerdict]) -> Chart:
    """One column for each of the latest verdicts, one row for each cell and metric; those with changes first."""
    shown = {f"#{number} {_minute(one.time)}": one for number, one in list(enumerate(found, 1))[-_COLUMNS:]}
    several = len({one.figure for verdict in shown.values() for one in verdict.judgments}) > 1
    cells = {title: {_name(one, several): one for one in verdict.judgments} for title, verdict in shown.items()}
    names = list(dict.fromkeys(name for column in cells.values() for name in column))
    names.sort(key=lambda name: not any(name in column and _loud(column[name]) for column in cells.values()))
    fields = []
    for title, verdict in shown.items():
        text, color = _OUTCOMES[verdict.exit_code]
        fields.append({"column": title, "row": "verdict", "text": text, "color": color})
        for name in names[:_CELLS]:
            text, color = _field(verdict, cells[title].get(name))
            fields.append({"column": title, "row": name, "text": text, "color": color})
    few = list(shown)[-_FEW:]
    said = ", ".join(f"{title}: {_OUTCOMES[verdict.exit_code][0][2:]}" for title, verdict in shown.items())
    more = f"{len(names) - _CELLS} more rows without a change are not shown. " if len(names) > _CELLS else ""
    older = f"{len(found) - _COLUMNS} earlier verdicts are not shown. " if len(found) > _COLUMNS else ""
    return Chart(
        _grid(fields, narrow=False),
        _grid([one for one in fields if one["column"] in few], narrow=True),
        f"{len(found)} verdicts on this run, the newest on the right. {said}.",
        _history_table(list(shown), fields, ["verdict", *names[:_CELLS]]),
        "Every verdict of this gate",
        "A column is one verdict, the newest on the right; a field is the value, then the change against the baseline.",
        f"{more}{older}{' '.join(_obstacles(found))}",
    )


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%m-%d %H:%M}"


def _name(one: Judgment, several: bool) -> str:
    return f"{one.label}: {FIGURES[one.figure].title}" if several else one.label


def _field(verdict: GateVerdict, one: Judgment | None) -> tuple[str, str]:
    """Text and color of a field; a verdict may know nothing of a cell."""
    if one is None:
        return ("? not judged", "warn") if verdict.exit_code == CANNOT_JUDGE else ("", "none")
    (symbol, color, _), known = MARKS[one.verdict], FIGURES[one.figure]
    if one.after is None:
        return f"{symbol} {one.verdict}", color
    sign = -1 if known.more_is_better else 1
    change = "" if one.drop is None or one.verdict == "identical" else f" {format_signed(known, sign * one.drop)}"
    return f"{symbol} {known.text(one.after)}{change}", color


def _obstacles(found: Sequence[GateVerdict]) -> Iterator[str]:
    """Why verdicts could not be given, and which one was the next that could."""
    for number, one in list(enumerate(found, 1))[-_COLUMNS:]:
        if one.exit_code == CANNOT_JUDGE:
            missing = (f"{each.label}: {each.why}" for each in one.judgments if each.verdict == "missing")
            why = next(iter((*one.incompatible, *missing)), "nothing was conclusive.")
            later = (at for at, each in enumerate(found[number:], number + 1) if each.exit_code != CANNOT_JUDGE)
            then = next(later, None)
            yield f"#{number} could not judge: {why}{f' Resolved in #{then}.' if then else ''}"


def _grid(rows: Sequence[Mapping[str, Any]], narrow: bool) -> _Layer:
    columns, cells = (list(dict.fromkeys(row[key] for row in rows)) for key in ("column", "row"))
    names = min(340.0, _CHARACTER * max(map(len, cells)) + 10)
    width = _NARROW if narrow else min(150 * len(columns), _WIDE - names)
    # Names above their rows where the page is narrow
    label = {"title": None, "labelFontSize": 13, "labelColor": "var(--ink)", "labelLimit": names, "domain": False}
    y: _Layer = {"field": "row", "type": "nominal", "sort": None, "axis": None if narrow else label,
                 "scale": {"paddingInner": 0.5 if narrow else 0.12, "paddingOuter": 0.3 if narrow else 0.05}}  # fmt: skip
    top = {"title": None, "orient": "top", "labelAngle": 0, "labelFontSize": 12, "labelColor": "var(--ink)"}
    x: _Layer = {"field": "column", "type": "nominal", "sort": None, "axis": top, "scale": {"paddingInner": 0.06}}
    names_of = ["green", "gray", "bad", "warn", "none"]
    color = {"field": "color", "type": "nominal", "legend": None,
             "scale": {"domain": names_of, "range": [*(f"var(--{one})" for one in names_of[:-1]), "transparent"]}}  # fmt: skip
    box = {"type": "rect", "cornerRadius": 3, "opacity": 0.3}
    text = {"type": "text", "fontSize": 12.5, "fontWeight": 600}
    layers: list[_Layer] = [
        {"mark": box, "encoding": {"x": x, "y": y, "color": color}},
        {"mark": text, "encoding": {"x": x, "y": y, "text": {"field": "text"}}},
    ]
    if narrow:
        mark = {"type": "text", "align": "left", "dy": -24, "fontSize": 12.5}
        names_layer = {"field": "row", "type": "nominal"}
        first = [{"filter": {"field": "column", "equal": columns[0]}}]
        layers.append({"transform": first, "mark": mark, "encoding": {"y": y, "x": {"value": 0}, "text": names_layer}})
    return {"data": {"values": list(rows)}, "width": width, "height": {"step": 54 if narrow else 32}, "layer": layers}


def _history_table(titles: Sequence[str], rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> TableBlock:
    texts = {(row["row"], row["column"]): row["text"] for row in rows}
    cells = [[name, *(texts.get((name, title), "") for title in titles)] for name in names]
    return TableBlock(
        [Heading("cell"), *map(Heading, titles)], cells, "Every verdict of this gate, the newest on the right"
    )
