"""Charts as inline SVG for light and dark backgrounds, without tooltips or scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, ParseError, fromstring

import vl_convert

from fedguard.bench.pages.elements import el
from fedguard.bench.pages.tokens import CONFIG
from fedguard.bench.records.reading import escape_tree

if TYPE_CHECKING:
    import altair as alt

#: The width of a chart that would fill its container, in pixels.
WIDTH = 720

#: Text and lines have the color of the page's text
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

#: Allowed elements of a chart: no scripts, links or styles, which could affect the rest of the page
_TAGS = {"svg", "g", "path", "rect", "line", "circle", "text", "tspan", "defs", "linearGradient", "stop", "clipPath"}


def draw_figure(chart: alt.TopLevelMixin, says: str) -> Element:
    """A figure element with the chart.

    Args:
        says: what it shows, as caption and as text for screen readers.
    """
    return el("figure", _draw(chart.to_dict(validate=False), _CONFIG, says), el("figcaption", says))


def draw_spec(spec: Mapping[str, Any], says: str) -> Element:
    """A Vega-Lite specification in token colors as SVG, or a sentence if it cannot be drawn."""
    return _draw(spec, CONFIG, says)


def _draw(spec: Mapping[str, Any], config: Mapping[str, Any], says: str) -> Element:
    try:
        # A control character would abort the renderer's process, so texts are escaped first. Specifications are not validated
        # here: Altair validated each part when it was made
        picture = fromstring(vl_convert.vegalite_to_svg(_style_spec(escape_tree(dict(spec)), config)))
    except ParseError:  # names that no picture can hold; the tables hold them
        return el("p", "This chart cannot be drawn.", class_="note")
    return _inline(picture, says)


def _style_spec(spec: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The specification with the page's colors, and with a fixed width instead of the container's."""
    return {**_set_widths(spec), "config": _merge_settings(spec.get("config", {}), config)}


def _set_widths(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: WIDTH
            if key == "width" and value == "container"
            else value
            if key == "datasets"
            else _set_widths(value)
            for key, value in part.items()
        }
    return [_set_widths(one) for one in part] if isinstance(part, list) else part


def _merge_settings(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merge_settings(under[key], over[key]) for key in under if isinstance(under[key], dict) and key in over
    }
    return {**under, **over, **both}


def number_chart_ids(page: Element) -> None:
    """Give the ids in charts distinct names, in the order of the page: the renderer reuses the same ones in each chart."""
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
    """The picture as a part of the page: without namespaces, and with one description instead of one per mark."""
    kept = _sanitize_element(picture)
    assert kept is not None
    width, height = picture.get("width", "0"), picture.get("height", "0")
    kept.attrib = {"viewBox": picture.get("viewBox", f"0 0 {width} {height}"), "width": width, "height": height}
    kept.attrib |= {"role": "img", "aria-label": says}
    return kept


def _sanitize_element(part: Element) -> Element | None:
    tag = part.tag.rpartition("}")[2]
    if tag not in _TAGS:
        return None
    attributes = {
        key: value
        for key, value in part.attrib.items()
        if not key.startswith(("aria-", "{", "on")) and key not in ("role", "class", "style", "href", "pointer-events")
    }
    copy = Element(tag, attributes)
    copy.text, copy.tail = part.text, part.tail
    copy.extend(below for one in part if (below := _sanitize_element(one)) is not None)
    return copy
