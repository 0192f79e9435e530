"""The chart of a breakdown, a panel for each attack: lines over a true axis, or rows of dots for names; and its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedguard.bench.pages.blocks import SYMBOLS, Chart, Heading, Key, TableBlock
from fedguard.bench.results.breakdown import ACCURACIES, WORST, Breakdown, BreakdownCurve, describe_area, describe_half
from fedguard.bench.terminal.plot import is_logarithmic
from fedguard.metrics.figures import FIGURES, Metric
from fedguard.metrics.stats import ENOUGH

#: Seeds from which a band replaces the dots of single seeds
_BAND = 5

#: Colors and shapes of the defenses, which repeat with other pairs
_COLORS = ("blue", "orange", "green", "violet", "gray")
_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down")

#: Widths of a page and of a narrow one; panels in a line; values that are all named on the axis
_WIDE, _NARROW, _PANELS, _NAMED = 1120, 318, 3, 12

_CROSS = "\N{MULTIPLICATION SIGN}"

_Layer = dict[str, Any]


def chart(found: Breakdown, place: str, rows: Sequence[Mapping[str, Any]], chance: float | None) -> Chart:
    """The curves of a setting.

    Args:
        rows: of the setting, for the values of single seeds.
        chance: the accuracy of guessing, as a share.
    """
    curves = [curve for curve in (*found.worst, *found.curves) if curve.setting == place]
    if len({curve.attack for curve in curves} - {WORST, "none"}) < 2:
        curves = [curve for curve in curves if curve.attack != WORST]
    names = list(dict.fromkeys(curve.defense for curve in found.curves if curve.setting == place))
    seeds = max((entry.estimate.seeds for curve in curves for entry in curve.entries if entry.estimate), default=0)
    draw = _Drawing(found, curves, names, list(_single_seeds(found, rows)) if seeds < _BAND else [], chance)
    known = FIGURES[found.figure]
    numbers = found.positions is not None
    spread = f"band: 95 % interval of {seeds} seeds" if seeds >= _BAND else f"open marks: {seeds} single seeds"
    if not numbers:
        spread = f"bar: 95 % interval of {seeds} seeds" if seeds >= ENOUGH else "bar: range of the seeds"
    shapes = [Key(SYMBOLS[_SHAPES[number % 5]], _COLORS[number % 5], name) for number, name in enumerate(names)]
    return Chart(
        draw.wide(),
        draw.narrow(),
        f"{known.title} over {found.key}, {len(names)} defenses, a panel for each of {len(draw.attacks)} attacks; "
        "the table names where half is lost.",
        _table(found, curves, place),
        f"{known.title[0].upper()}{known.title[1:]} over {found.key}{f' ({place})' if place else ''}",
        f"Means over seeds; {spread}{draw.about()}.",
        "Half is of the accuracy above chance, along the mean, between two points."
        if found.figure in ACCURACIES
        else "",
        shapes,
    )


def _single_seeds(found: Breakdown, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    known = FIGURES[found.figure]
    for row in rows:
        if row["status"] == "ok" and row[found.figure] is not None:
            label = str(row[found.key])
            at = None if found.positions is None else found.positions[found.labels.index(label)]
            value = known.scale * row[found.figure]
            yield {
                "attack": _name(row["attack"]),
                "defense": row["defense"],
                "label": label,
                "at": at,
                "seed_value": value,
            }


def _name(attack: str) -> str:
    return {"none": "no attack", WORST: "worst of these"}.get(attack, attack)


class _Drawing:
    """The two drawings of the same curves."""

    def __init__(
        self,
        found: Breakdown,
        curves: Sequence[BreakdownCurve],
        names: Sequence[str],
        seeds: list[dict[str, Any]],
        chance: float | None,
    ) -> None:
        self.found, self.curves, self.names, self.seeds = found, curves, names, seeds
        self.known: Metric = FIGURES[found.figure]
        self.chance = None if chance is None else self.known.scale * chance
        attacks = dict.fromkeys(curve.attack for curve in curves)
        self.attacks = [_name(one) for one in sorted(attacks, key=lambda one: (one == "none", one != WORST))]
        self.rows = [row for curve in curves for row in self._rows(curve)]
        first = next((one for one in curves if one.defense == "mean" and one.threshold is not None), None)
        self.half = first or next((one for one in curves if one.threshold is not None), None)
        values = [row[key] for row in self.rows for key in ("mean", "low", "high") if row.get(key) is not None]
        self.domain: list[float] | None = None
        if self.known.unit == "%" and self.known.more_is_better and min(values, default=0.0) >= 0:
            self.domain = [0.0, 100.0]

    def about(self) -> str:
        """What else is drawn."""
        said = [", dashed: chance"] if self.chance is not None else []
        if self.half is not None and self.found.positions is not None:
            said.append(f" and half of what {self.half.defense} has; cross: where a line loses its own half")
        missing = any(row.get("status", "ok") != "ok" for row in self.rows)
        return "".join(said) + (f"; {_CROSS} at the foot: refused, failed or missing" if missing else "")

    def wide(self) -> _Layer:
        columns = min(_PANELS, len(self.attacks))
        return self._facet(columns, (_WIDE - 60 * columns) / columns if self._numeric else (_WIDE - 200) / columns - 30)

    def narrow(self) -> _Layer:
        return self._facet(1, _NARROW - 40 if self._numeric else _NARROW - 10)

    @property
    def _numeric(self) -> bool:
        return self.found.positions is not None

    def _facet(self, columns: int, width: float) -> _Layer:
        narrow = columns == 1 and width < _NARROW
        header = {
            "title": None,
            "labelColor": "var(--ink)",
            "labelFontSize": 13,
            "labelFontWeight": 600,
            "labelAnchor": "start",
            "labelLimit": width,
        }
        step = 15 * len(self.names) + (36 if narrow else 16)
        height: Any = 230 if self._numeric else {"step": step, "for": "position"}
        layers = self._lines() if self._numeric else self._dots(step, narrow)
        return {
            "data": {"values": [*self.rows, *self.seeds]},
            "facet": {"field": "attack", "type": "nominal", "sort": self.attacks, "header": header},
            "columns": columns,
            "spacing": {"row": 26, "column": 22},
            "spec": {"width": min(width, 760), "height": height, "layer": list(layers)},
            "resolve": {"axis": {"x": "independent"}},
        }

    def _rows(self, curve: BreakdownCurve) -> Iterator[dict[str, Any]]:
        for number, (label, entry) in enumerate(zip(self.found.labels, curve.entries, strict=True)):
            row: dict[str, Any] = {
                "attack": _name(curve.attack),
                "defense": curve.defense,
                "label": label,
                "status": entry.status,
            }
            row["at"] = None if self.found.positions is None else self.found.positions[number]
            row["said"], one, scale = entry.text(), entry.estimate, self.known.scale
            row["mean"] = None if one is None else scale * one.mean
            if one is not None and one.low is not None and one.high is not None:
                row |= {"low": scale * one.low, "high": scale * one.high}
            yield row
        if isinstance(curve.half, float) and curve.threshold is not None:
            crossing = {"half_at": curve.half, "half_value": self.known.scale * curve.threshold}
            yield {"attack": _name(curve.attack), "defense": curve.defense, **crossing}

    def _scales(self) -> dict[str, _Layer]:
        colors = [f"var(--{_COLORS[number % 5]})" for number in range(len(self.names))]
        shapes = [_SHAPES[number % 5] for number in range(len(self.names))]
        found = {}
        for channel, values in (("color", colors), ("shape", shapes)):
            scale = {"domain": list(self.names), "range": values}
            found[channel] = {"field": "defense", "type": "nominal", "legend": None, "scale": scale}
        return found

    def _value(self, field: str) -> _Layer:
        scale: _Layer = {"domain": self.domain, "nice": False} if self.domain else {"zero": True}
        return {
            "field": field,
            "type": "quantitative",
            "scale": scale,
            "axis": {"title": self.known.heading, "tickCount": 5},
        }

    def _references(self, channel: str) -> Iterator[_Layer]:
        lines = [(self.chance, "chance")] if self.chance is not None else []
        if self.half is not None and self.half.threshold is not None and self._numeric:
            lines.append((self.known.scale * self.half.threshold, f"half of {self.half.defense}"))
        for value, name in lines:
            rule = {"type": "rule", "strokeDash": [3, 3], "color": "var(--faint)"}
            once: _Layer = {"data": {"values": [{}]}}
            yield {**once, "mark": rule, "encoding": {channel: {"datum": value}}}
            if channel == "y":
                text = {
                    "type": "text",
                    "align": "left",
                    "dx": 4,
                    "dy": -6,
                    "color": "var(--faint)",
                    "text": f"{name} {value:.1f}",
                }
                yield {**once, "mark": text, "encoding": {"y": {"datum": value}, "x": {"value": 0}}}

    def _lines(self) -> Iterator[_Layer]:
        numbers = self.found.positions or ()
        logarithmic = is_logarithmic(numbers)
        scale: _Layer = {"type": "log" if logarithmic else "linear", "reverse": numbers[0] > numbers[-1], "nice": False}
        scale |= {"domain": [min(numbers), max(numbers)], "padding": 12}
        axis: _Layer = {"title": self.found.key, "labelFlush": False, "grid": False}
        axis |= {"values": list(numbers), "format": "~g"} if len(numbers) <= _NAMED else {}
        x = {"field": "at", "type": "quantitative", "scale": scale, "axis": axis}
        looks = self._scales()
        tooltip = [{"field": name, "type": "nominal"} for name in ("attack", "defense", "label", "said")]
        yield from self._references("y")
        if not self.seeds:
            band = {"type": "area", "opacity": 0.16}
            ends = {"y": self._value("low"), "y2": {"field": "high"}, "x": x, "color": looks["color"]}
            yield {"transform": [_valid("low")], "mark": band, "encoding": ends}
        yield _mark("status", {"type": "line", "strokeWidth": 2.2}, x=x, y=self._value("mean"), color=looks["color"])
        open_ = {"type": "point", "filled": False, "size": 30, "opacity": 0.75}
        yield _mark("seed_value", open_, x=x, y=self._value("seed_value"), **looks)
        point = {"type": "point", "filled": True, "size": 60, "opacity": 1}
        only = [_valid("at"), _valid("mean")]
        yield {
            "transform": only,
            "mark": point,
            "encoding": {"x": x, "y": self._value("mean"), **looks, "tooltip": tooltip},
        }
        cross = {"type": "point", "shape": "cross", "filled": True, "size": 90, "opacity": 1, "stroke": "var(--ink)"}
        yield _mark("half_at", cross, x={**x, "field": "half_at"}, y=self._value("half_value"), color=looks["color"])
        missing = [{"filter": "datum.status && datum.status != 'ok'"}]
        foot = {"type": "text", "text": _CROSS, "fontSize": 16, "dy": -6}
        yield {"transform": missing, "mark": foot, "encoding": {"x": x, "y": {"value": 230}, "color": looks["color"]}}

    def _dots(self, step: int, narrow: bool) -> Iterator[_Layer]:
        """Rows by value, sorted by the clean value of the first defense, with a line of dots for each defense."""
        order = {
            row["label"]: row["mean"]
            for row in reversed(self.rows)
            if row["attack"] == "no attack" and row.get("label")
        }
        labels = sorted(self.found.labels, key=lambda label: -(order.get(label) or 0.0))
        axis = {"title": None, "labelFontSize": 13, "labelColor": "var(--ink)", "labelLimit": 200}
        y: _Layer = {"field": "label", "type": "nominal", "sort": labels, "axis": None if narrow else axis}
        start = 26 if narrow else 8
        beside = {"field": "defense", "type": "nominal", "sort": list(self.names),
                  "scale": {"domain": list(self.names), "range": [start, start + 15 * (len(self.names) - 1)]}}  # fmt: skip
        looks = self._scales()
        tooltip = [{"field": name, "type": "nominal"} for name in ("attack", "defense", "label", "said")]
        yield from self._references("x")
        for low, high in (("low", "high"), ("least", "most")):
            bar = {"type": "rule", "strokeWidth": 5, "opacity": 0.38}
            ends = {"x": self._value(low), "x2": {"field": high}, "y": y, "yOffset": beside, "color": looks["color"]}
            yield {"transform": [*self._spread(low), _valid(low)], "mark": bar, "encoding": ends}
        point = {"type": "point", "filled": True, "size": 65, "opacity": 1}
        yield _mark("mean", point, x=self._value("mean"), y=y, yOffset=beside, tooltip=tooltip, **looks)
        missing = [
            {"filter": "datum.status && datum.status != 'ok'"},
            {"calculate": "datum.defense + ': ' + datum.status", "as": "why"},
        ]
        text = {"type": "text", "align": "left", "fontSize": 11.5, "color": "var(--faint)", "dx": 4}
        yield {
            "transform": missing,
            "mark": text,
            "encoding": {"x": {"value": 0}, "y": y, "yOffset": beside, "text": {"field": "why"}},
        }
        if narrow:
            first = [{"filter": {"field": "defense", "equal": self.names[0]}}, _valid("status")]
            name = {"type": "text", "align": "left", "fontSize": 13, "dy": 10 - step / 2}
            yield {
                "transform": first,
                "mark": name,
                "encoding": {"x": {"value": 0}, "y": y, "text": {"field": "label"}},
            }

    def _spread(self, low: str) -> list[_Layer]:
        """The range of two seeds, which have no interval."""
        if low == "low":
            return []
        ends = [{"op": "min", "field": "seed_value", "as": "least"}, {"op": "max", "field": "seed_value", "as": "most"}]
        enough = any(row.get("low") is not None for row in self.rows)
        seeds = [{"filter": "false" if enough else "isValid(datum.seed_value)"}]
        return [*seeds, {"aggregate": ends, "groupby": ["attack", "defense", "label"]}]


def _valid(field: str) -> _Layer:
    return {"filter": f"isValid(datum.{field})"}


def _mark(field: str, mark: _Layer, **encoding: Any) -> _Layer:
    return {"transform": [_valid(field)], "mark": mark, "encoding": encoding}


def _table(found: Breakdown, curves: Sequence[BreakdownCurve], place: str) -> TableBlock:
    """Each curve: where half is lost, the area below it, and its points."""
    known = FIGURES[found.figure]
    halves = ["half is lost at", "area"] if found.figure in ACCURACIES else []
    rows = [
        [
            f"{_name(curve.attack)} against {curve.defense}",
            *([describe_half(curve), describe_area(curve, found.labels[-1])] if halves else []),
            *(entry.text() for entry in curve.entries),
        ]
        for curve in curves
    ]
    columns = [Heading("cell"), *(Heading(name, number=True) for name in (*halves, *found.labels))]
    area = "; area: the mean share of the accuracy above chance that is kept along the key" if halves else ""
    caption = f"{known.heading[0].upper()}{known.heading[1:]} over {found.key}{f' ({place})' if place else ''}{area}"
    return TableBlock(columns, rows, caption)
