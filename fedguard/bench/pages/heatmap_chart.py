"""A heat map as a chart, for files: on a page it is a table of links (`fedguard.bench.pages.html`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedguard.bench.pages.blocks import Chart, Field, Heading, Heatmap, Panel, TableBlock

#: Width and height of a field, where there is room and in a column of a paper; largest width of panels beside each other
_FIELD, _SMALL, _WIDEST = (74, 40), (56, 24), 1000

#: Opacity of the strongest color on white
_STRONGEST = 0.7

_Layer = dict[str, Any]


def draw_heatmap(block: Heatmap) -> Chart:
    """The panels as rectangles with their values; intervals are in the drawing of the width of a page, and in the table."""
    across = max(1, int(_WIDEST / max(120 + _FIELD[0] * len(panel.columns) for panel in block.panels)))
    wide = {"concat": [_panel(panel, *_FIELD, spread=True) for panel in block.panels], "columns": across}
    narrow = {"vconcat": [_panel(panel, *_SMALL, spread=False) for panel in block.panels]}
    return Chart(wide, narrow, " ".join(_findings(block)), _table(block), block.title, block.about)


def _panel(panel: Panel, width: int, height: int, *, spread: bool) -> _Layer:
    rows = [
        {"attack": name, "defense": defense, "text": field.text, "spread": field.spread, "heat": field.heat}
        for name, fields in panel.rows
        for defense, field in zip(panel.columns, fields, strict=True)
    ]
    names = [name for name, _ in panel.rows]
    label = {"title": None, "labelColor": "var(--ink)", "labelPadding": 4, "domain": False, "ticks": False}
    above = {**label, "orient": "top", "labelAngle": -35}
    place = {
        "x": {"field": "defense", "type": "nominal", "sort": list(panel.columns), "axis": above},
        "y": {"field": "attack", "type": "nominal", "sort": names, "axis": label},
    }
    square = {"type": "rect", "color": "var(--orange)", "stroke": "var(--ground)", "strokeWidth": 2}
    scale = {"domain": [0, 1], "range": [0, _STRONGEST]}
    opacity = {"field": "heat", "type": "quantitative", "scale": scale, "legend": None}
    none = {"type": "rect", "fillOpacity": 0, "stroke": "var(--gray)", "strokeDash": [3, 3], "strokeWidth": 1}
    layers: list[_Layer] = [
        {"transform": [{"filter": "datum.heat != null"}], "mark": square, "encoding": {**place, "opacity": opacity}},
        {"transform": [{"filter": "datum.heat == null"}], "mark": none, "encoding": place},
        _text(place, "text", {"fontSize": 12, "fontWeight": 600, "dy": -6 if spread else 0}),
        *([_text(place, "spread", {"fontSize": 10, "dy": 9})] if spread else []),
    ]
    size = {"width": width * len(panel.columns), "height": height * len(names)}
    return {**size, "data": {"values": rows}, "layer": layers, **({"title": panel.title} if panel.title else {})}


def _text(place: _Layer, field: str, style: _Layer) -> _Layer:
    return {"mark": {"type": "text", **style}, "encoding": {**place, "text": {"field": field}}}


def _findings(block: Heatmap) -> Iterator[str]:
    """The last row of each panel: what is left under the worst attack."""
    for panel in block.panels:
        for name, fields in panel.rows[len(panel.rows) - panel.last :] if panel.last else ():
            values = ", ".join(f"{defense} {field.text}" for defense, field in zip(panel.columns, fields, strict=True))
            yield f"{_place(panel)}{name} {block.corner}: {values}."


def _place(panel: Panel) -> str:
    return f"{panel.title}, " if panel.title else ""


def _table(block: Heatmap) -> TableBlock:
    """A row for each row of each panel; panels may have other columns than their neighbors."""
    columns = list(dict.fromkeys(name for panel in block.panels for name in panel.columns))
    titled = any(panel.title for panel in block.panels)
    rows = [
        [*([panel.title] if titled else []), name, *_cells(dict(zip(panel.columns, fields, strict=True)), columns)]
        for panel in block.panels
        for name, fields in panel.rows
    ]
    heads = [*(["panel"] if titled else []), block.corner]
    return TableBlock([*map(Heading, heads), *(Heading(one, number=True) for one in columns)], rows, block.title)


def _cells(fields: dict[str, Field], columns: Sequence[str]) -> Iterator[str | None]:
    for name in columns:
        field = fields.get(name)
        yield f"{field.text} {field.spread}".strip() if field else None
