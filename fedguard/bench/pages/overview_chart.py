"""The chart of the overview: each defense without attack and under its worst attack, with intervals; and its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedguard.bench.pages.blocks import Bar, Chart, Heading, Key, TableBlock, decimal
from fedguard.bench.results.answer import NOUNS, DefenseSummary
from fedguard.bench.results.verdict import RunVerdict
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import ENOUGH, Estimate

#: Width of a character of a bold label, in pixels: reserved for the reader's font, which is not known
_CHARACTER = 7.4

#: Height of a row where names stand beside their rows, and above them
_ROW, _TALL_ROW = 46, 60

_AXIS = [0, 20, 40, 60, 80, 100]

#: A layer of a Vega-Lite chart
Layer = dict[str, Any]


def chart(found: Sequence[DefenseSummary], verdict: RunVerdict, references: Mapping[str, float]) -> Chart:
    """The chart of one setting.

    Args:
        found: the defenses with a value, best first if the verdict ranks them.
        references: shares to draw lines at, by their names.
    """
    noun = NOUNS[found[0].score]
    rows = [_row(one, one.defense in verdict.group) for one in found]
    backdoor = any(one.success for one in found)
    attacks = max(one.measured for one in found)
    under = f"under the worst of {attacks} attacks" if attacks != 1 else "under the attack"
    seeds = max((one.worst.estimate.seeds for one in found if one.worst), default=0)
    two = "range of two seeds" if seeds == ENOUGH - 1 else ""
    keys = [Key("ring", "blue", "no attack"), Key("dot", "orange", "worst attack, named")]
    keys += [Key("triangle", "violet", "backdoor")] if backdoor else []
    keys += [Key("bar", "orange", two or f"95 % interval over {seeds} seeds")] if two or seeds >= ENOUGH else []
    keys += [Key("band", "band", "leading group: not separated from the highest mean")] if verdict.group else []
    sorted_by = (
        f"Sorted by the worse of two scores: {noun} {under}, and the share of inputs on which the backdoor fails."
    )
    title = "How far each defense falls" if verdict.ranked else "What was measured, without a ranking"
    note = "Paired by seed, Student's t, Holm over all comparisons with the highest mean. " if verdict.ranked else ""
    draw = _Panels(rows, {name: 100 * share for name, share in references.items()}, noun, under, backdoor)
    return Chart(
        draw.wide(),
        draw.narrow(),
        f"{len(found)} defenses by {noun} without attack and {under}. {verdict.headline}",
        _table(found, rows, backdoor, references),
        title,
        sorted_by if verdict.ranked and backdoor else f"Sorted by {noun} {under}." if verdict.ranked else "",
        f"{note}The worst attack is chosen on the same seeds, which is slightly pessimistic; worst_case avoids it.",
        keys,
    )


def _row(one: DefenseSummary, leads: bool) -> dict[str, Any]:
    """A defense in percent; what it does not have is left out."""
    row: dict[str, Any] = {"defense": one.defense, "lead": leads}
    if one.clean:
        row |= _ends("clean", one.clean)
    if one.worst:
        row |= _ends("worst", one.worst.estimate) | {"attack": one.worst.attack}
        if one.worst.estimate.low is None and len(one.by_seed) > 1 and one.judged_by == one.worst.estimate:
            row |= {"worst_low": 100 * min(one.by_seed.values()), "worst_high": 100 * max(one.by_seed.values())}
    return row | (_ends("backdoor", one.success.estimate) if one.success else {})


def _ends(name: str, found: Estimate) -> dict[str, Any]:
    row = {name: 100 * found.mean, f"{name}_label": decimal(100 * found.mean)}
    if found.low is not None and found.high is not None:
        row |= {f"{name}_low": 100 * found.low, f"{name}_high": 100 * found.high}
    return row


def _table(
    found: Sequence[DefenseSummary], rows: Sequence[Mapping[str, Any]], backdoor: bool, references: Mapping[str, float]
) -> TableBlock:
    figure, success = FIGURES[found[0].score], FIGURES["attack_success"]
    columns = [
        Heading("defense"),
        Heading("no attack, %", number=True),
        Heading("under the worst attack, %", number=True),
        Heading("which"),
    ]
    cells: list[list[str | float | None]] = [
        [
            one.defense,
            row.get("clean"),
            figure.format_estimate(one.worst.estimate) if one.worst else None,
            one.worst.attack if one.worst else None,
            *([success.format_estimate(one.success.estimate) if one.success else None] if backdoor else []),
        ]
        for one, row in zip(found, rows, strict=True)
    ]
    bars = [
        Bar(row["worst"], row.get("worst_low"), row.get("worst_high"), row.get("clean")) if "worst" in row else None
        for row in rows
    ]
    return TableBlock(
        [*columns, Heading("backdoor success, %", number=True)] if backdoor else columns,
        cells,
        f"{NOUNS[found[0].score].capitalize()} of each defense without attack and under its worst attack",
        leading=[number for number, row in enumerate(rows) if row["lead"]],
        bars=bars,
        legend="● worst attack   ─ 95 % interval or range   ○ no attack",
        compare=", ".join(f"{name} {decimal(100 * share)} %" for name, share in references.items()),
    )


class _Panels:
    """The two drawings of the same rows."""

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], lines: Mapping[str, float], noun: str, under: str, backdoor: bool
    ) -> None:
        self.rows, self.lines, self.noun, self.under, self.backdoor = rows, lines, noun, under, backdoor

    def wide(self) -> Layer:
        """The panels beside each other, with names on the left."""
        whole = 620 if self.backdoor else 850
        return {"hconcat": self._panels(whole, 230, tall=False), "spacing": 30} | self._data(whole)

    def narrow(self) -> Layer:
        """The panels beneath each other, with names above the rows, for 390 pixels."""
        return {"vconcat": self._panels(318, 318, tall=True), "spacing": 24} | self._data(318)

    def _data(self, width: int) -> Layer:
        return {"data": {"values": [{**row, **_places(row, width)} for row in self.rows]}}

    def _panels(self, width: int, second: int, tall: bool) -> list[Layer]:
        first = [*self._references(), *self._names(tall), *_accuracy()]
        subtitle = f"without attack → {self.under}"
        panels = [self._panel(width, first, self.noun.capitalize() + ", %", subtitle, tall)]
        if self.backdoor:
            marks = [*_backdoor(), *(self._names(tall) if tall else [])]
            offset = (
                10 if tall else 10 + min(27, 14 * len(self.lines))
            )  # as high as the other panel, with its references
            panels.append(self._panel(second, marks, "Backdoor success, %", "above a clean model's", tall, offset))
        return panels

    def _panel(
        self, width: int, layers: Sequence[Layer], title: str, subtitle: str, tall: bool, offset: int = 10
    ) -> Layer:
        band = {
            "transform": [{"filter": "datum.lead"}],
            "mark": {"type": "rect", "color": "var(--band)"},
            "encoding": {"y": _y(), "x": {"value": 0}, "x2": {"value": width}},
        }
        # Panels beside each other share their rows: without a domain a panel would leave out rows without a mark of its own
        rows = {**_y(), "scale": {"domain": [row["defense"] for row in self.rows]}}
        drawn = [layer | {"encoding": layer["encoding"] | ({"y": rows} if layer["encoding"].get("y") == _y() else {})}
                 for layer in (band, *layers)]  # fmt: skip
        step = _TALL_ROW if tall else _ROW
        title_of = {"text": title, "subtitle": subtitle, "offset": offset}
        return {"width": width, "height": {"step": step}, "title": title_of, "layer": drawn}

    def _names(self, tall: bool) -> list[Layer]:
        place: Layer = {"align": "left", "dy": -22} if tall else {"align": "right", "lineHeight": 15, "lineBreak": "\n"}
        weight = {"expr": "datum.lead ? 700 : 400"}
        mark = {"type": "text", "fontSize": 13 if tall else 14, "baseline": "middle", "fontWeight": weight, **place}
        field = "defense" if tall else "lines"
        return [{"mark": mark, "encoding": {"y": _y(), "x": {"value": 4 if tall else -12}, "text": {"field": field}}}]

    def _references(self) -> Iterator[Layer]:
        for number, (name, percent) in enumerate(self.lines.items()):
            values = {"values": [{"at": percent, "name": f"{name} {percent:.1f}"}]}
            x = {"field": "at", "type": "quantitative"}
            left = percent < 50
            text = {
                "type": "text",
                "align": "left" if left else "right",
                "dx": 4 if left else -4,
                "dy": -8 - 13 * (number % 2),
            }
            yield {
                "data": values,
                "mark": {"type": "rule", "strokeDash": [3, 3], "color": "var(--faint)"},
                "encoding": {"x": x},
            }
            yield {
                "data": values,
                "mark": {**text, "color": "var(--faint)", "fontSize": 12, "baseline": "middle"},
                "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "name"}},
            }


def _places(row: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Name in lines, and a place for the label of the worst attack that covers neither the ring's label nor the edge."""
    placed: dict[str, Any] = {"lines": row["defense"].replace(" >> ", " >>\n")}
    if "worst" in row:
        label = f"{row['worst_label']} {row['attack']}"
        half = 50 * len(label) * _CHARACTER / width
        at, ring, gap = row["worst"], row.get("clean"), 50 * 5 * _CHARACTER / width
        if ring is not None and abs(at - ring) < half + gap:
            at = ring - half - gap if ring - 2 * half - gap >= 0 else max(at, ring) + half + gap
        placed |= {"label": label, "label_at": min(100 - half, max(half, at))}
    return placed


def _y() -> Layer:
    return {"field": "defense", "type": "nominal", "sort": None, "axis": None}


def _x(field: str, domain: Sequence[float] = (0, 100)) -> Layer:
    axis = {"title": None, "values": _AXIS, "labelFlush": False}
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"domain": list(domain), "nice": False, "clamp": True},
        "axis": axis,
    }


def _mark(field: str, mark: Layer, x: Layer, **encoding: Any) -> Layer:
    """A mark on the rows that have the field."""
    return {
        "transform": [{"filter": f"isValid(datum.{field})"}],
        "mark": {"yOffset": 7, **mark} if mark["type"] != "text" else mark,
        "encoding": {"y": _y(), "x": x, **encoding},
    }


def _accuracy() -> Iterator[Layer]:
    tooltip = [{"field": name, "type": "nominal"} for name in ("defense", "attack", "clean_label", "worst_label")]
    worst, clean = _x("worst"), _x("clean")
    yield _mark("worst", {"type": "rule", "strokeWidth": 2, "color": "var(--line)"}, worst, x2={"field": "clean"})
    line = {"type": "rule", "strokeWidth": 1.6, "color": "var(--faint)"}
    yield _mark("clean_low", line, _x("clean_low"), x2={"field": "clean_high"})
    bar = {"type": "rule", "strokeWidth": 6, "opacity": 0.38, "color": "var(--orange)"}
    yield _mark("worst_low", bar, _x("worst_low"), x2={"field": "worst_high"})
    ring = {
        "type": "point",
        "size": 70,
        "strokeWidth": 2,
        "color": "var(--blue)",
        "fill": "var(--ground)",
        "opacity": 1,
    }
    yield _mark("clean", ring, clean, tooltip=tooltip)
    dot = {"type": "point", "filled": True, "size": 95, "color": "var(--orange)", "opacity": 1}
    yield _mark("worst", dot, worst, tooltip=tooltip)
    label = {"type": "text", "dy": -6, "fontWeight": 600}
    yield _mark("worst", label, _x("label_at"), text={"field": "label"})
    yield _mark("clean", {"type": "text", "dy": -6, "color": "var(--blue)"}, clean, text={"field": "clean_label"})


def _backdoor() -> Iterator[Layer]:
    domain = (-12, 108)
    x = _x("backdoor", domain)
    bar = {"type": "rule", "strokeWidth": 6, "opacity": 0.38, "color": "var(--violet)"}
    yield _mark("backdoor_low", bar, _x("backdoor_low", domain), x2={"field": "backdoor_high"})
    point = {
        "type": "point",
        "filled": True,
        "shape": "triangle-up",
        "size": 85,
        "color": "var(--violet)",
        "opacity": 1,
    }
    yield _mark("backdoor", point, x)
    yield _mark("backdoor", {"type": "text", "dy": -6, "fontWeight": 600}, x, text={"field": "backdoor_label"})
