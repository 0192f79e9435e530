"""Altair charts as inline SVG that shows on light and on dark ground, without tooltips and without anything that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, ParseError, fromstring

import altair as alt
import vl_convert

from fedguard.app.report.elements import el
from fedguard.bench.records.reading import escaped_within

#: The width of a chart that would fill its container, in pixels.
WIDTH = 720

#: Text and lines take the colour of the page's text.
_INK = "currentColor"
_TEXT = {"labelColor": _INK, "titleColor": _INK, "labelFontSize": 12, "titleFontSize": 12}
_CONFIG: dict[str, Any] = {
    "background": None,
    "font": "Arial, 'Liberation Sans', Helvetica, sans-serif",
    "padding": {"left": 16, "right": 16, "top": 5, "bottom": 5},
    "axis": {**_TEXT, "domainColor": _INK, "tickColor": _INK, "gridColor": _INK, "gridOpacity": 0.15},
    "legend": {**_TEXT, "labelLimit": 300, "symbolBaseStrokeColor": _INK, "symbolBaseFillColor": _INK},
    "header": _TEXT,
    "title": {"color": _INK, "subtitleColor": _INK},
    "text": {"color": _INK, "fontSize": 12},
    "view": {"stroke": None},
}

#: What a chart may consist of; neither scripts nor links nor styles, which reach beyond the picture.
_TAGS = {"svg", "g", "path", "rect", "line", "circle", "text", "tspan", "defs", "linearGradient", "stop", "clipPath"}


def drawn(chart: alt.TopLevelMixin, says: str) -> Element:
    """A figure with the chart in it.

    Args:
        says: what it shows, for those who see it and for those who have it read to them.
    """
    caption = el("figcaption", says)
    try:
        # The renderer ends the process on a control character. Altair has looked at each part when it was made.
        picture = fromstring(vl_convert.vegalite_to_svg(_fixed(escaped_within(chart.to_dict(validate=False)))))
    except ParseError:  # names that no picture can hold; the tables hold them
        return el("figure", el("p", "This chart cannot be drawn.", class_="note"), caption)
    return el("figure", _inline(picture, says), caption)


def _fixed(spec: dict[str, Any]) -> dict[str, Any]:
    """With the page's colors, and a width of its own where it would take its container's."""
    return {**_sized(spec), "config": _merged(spec.get("config", {}), _CONFIG)}


def _sized(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: WIDTH if key == "width" and value == "container" else value if key == "datasets" else _sized(value)
            for key, value in part.items()
        }
    return [_sized(one) for one in part] if isinstance(part, list) else part


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merged(under[key], over[key]) for key in under if isinstance(under[key], dict) and key in over}
    return {**under, **over, **both}


def numbered(page: Element) -> None:
    """Give what charts refer to names of its own, in the order of the page: each chart brings the same ones."""
    for number, picture in enumerate(page.iter("svg"), start=1):
        names = {
            part.get("id"): f"chart{number}-{place}" for place, part in enumerate(picture.iter()) if part.get("id")
        }
        for part in picture.iter():
            for key, value in part.attrib.items():
                if key == "id":
                    part.set(key, names[value])
                elif value.startswith("url("):
                    part.set(key, f"url(#{names.get(value[5:-1], '')})")


def _inline(picture: Element, says: str) -> Element:
    """The picture as a part of the page: no namespaces, and one description instead of one per mark."""
    kept = _kept(picture)
    assert kept is not None
    width, height = picture.get("width", "0"), picture.get("height", "0")
    kept.attrib = {"viewBox": picture.get("viewBox", f"0 0 {width} {height}"), "width": width, "height": height}
    kept.attrib |= {"role": "img", "aria-label": says}
    return kept


def _kept(part: Element) -> Element | None:
    tag = part.tag.rpartition("}")[2]
    if tag not in _TAGS:
        return None
    attributes = {
        key: value
        for key, value in part.attrib.items()
        if not key.startswith(("aria-", "{", "on")) and key not in ("role", "class", "style", "href")
    }
    copy = Element(tag, attributes)
    copy.text, copy.tail = part.text, part.tail
    copy.extend(below for one in part if (below := _kept(one)) is not None)
    return copy
