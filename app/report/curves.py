"""Breakdown of defenses over each swept number."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from fedguard.app.charts.breakdown import breakdown
from fedguard.bench.pages.elements import el, fold_content, table
from fedguard.bench.pages.svg import draw_figure
from fedguard.bench.results.breakdown import Breakdown, BreakdownCurve
from fedguard.bench.results.run import Run
from fedguard.metrics.stats import bracket


def curves(run: Run) -> list[Element]:
    """The final accuracy over each swept number."""
    return [part for key in run.swept for part in _over(run.breakdown(key))]


def _over(found: Breakdown) -> Iterator[Element]:
    if found.positions is None:
        return
    yield el("h3", f"Over {found.key}")
    for setting in dict.fromkeys(curve.setting for curve in found.curves):
        says = f"Final accuracy over {found.key}, one line per defense, side by side; upright lines are 95 % intervals."
        yield draw_figure(breakdown(found, setting), f"{setting}: {says}" if setting else says)
        rows = [_row(curve) for curve in (*found.curves, *found.worst) if curve.setting == setting]
        caption = f"Final accuracy in % over {found.key}" + (f"; {setting}" if setting else "")
        half = (
            "Half: where half of the accuracy above chance is lost, on the line between points. Area: the mean share of it "
            "that is kept along the key, 1 for all."
        )
        points = table(caption, ["attack against defense", "half is lost at", "area", *found.labels], rows, "lr")
        yield fold_content("As a table, with where half is lost", points, el("p", half, class_="note"))


def _row(curve: BreakdownCurve) -> list[str]:
    half = "never" if curve.half is None else curve.half if isinstance(curve.half, str) else f"{curve.half:.3g}"
    spread = ""
    if isinstance(curve.half, float) and curve.half_width is not None:
        spread = f" {bracket(curve.half, curve.half_width, '.3g')}"
    area = "-" if curve.area is None else f"{curve.area.mean:.2f}"
    wide = (
        ""
        if curve.area is None or curve.area.half_width is None
        else f" {bracket(curve.area.mean, curve.area.half_width, '.2f')}"
    )
    return [
        f"{curve.attack} against {curve.defense}",
        half + spread if curve.until else "-",
        area + wide,
        *(entry.text() for entry in curve.entries),
    ]
