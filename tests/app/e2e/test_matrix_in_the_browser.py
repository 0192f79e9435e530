"""The matrix stays readable: every name of a wide run, in every window, and the colors' legend whatever is pointed at."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from PIL import Image
from playwright.sync_api import expect

import fedguard as fg
from fedguard.metrics.figures import FIGURES
from tests import stores

pytestmark = pytest.mark.e2e

#: Pixels between the anchors of two neighboring names at an angle of 40 degrees, so that their lines do not touch.
APART = 20

#: Where each name of a column begins, in pixels of the window. One that is dropped stays in the page, and is transparent.
NAMES = """one => [...one.querySelectorAll('.role-axis-label text')]
    .filter(text => text.getAttribute('opacity') !== '0')
    .map(text => [text.textContent, text.getBoundingClientRect().left])"""


@pytest.mark.parametrize("width", [700, 1000, 1440])
@pytest.mark.parametrize("run", ["wide", "everything"])
def test_every_name_stays_readable(reader, dashboard, store, run, width):
    seen = reader(dashboard, viewport={"width": width, "height": 900}).open("matrix", run=run).shows("Matrix")
    chart = seen.charts().first
    defenses = list(dict.fromkeys(row["defense"] for row in fg.open_run(run, store).rows()))
    places = dict(chart.evaluate(NAMES))
    assert set(defenses) <= set(places), "names are dropped or cut"
    lefts = [places[name] for name in defenses]
    assert all(right - left >= APART for left, right in pairwise(lefts))
    last = chart.locator("text", has_text=defenses[-1]).first
    last.scroll_into_view_if_needed()
    box = last.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
    assert (
        seen.page.evaluate("() => document.documentElement.scrollWidth") <= width
    )  # the chart scrolls, the page does not


def test_the_numbers_of_neighbors_do_not_touch(reader, dashboard):
    seen = reader(dashboard).open("matrix", run="wide").shows("Matrix")
    squares = seen.charts().first.locator('path[aria-label*="attack: sign_flip;"]')
    box = squares.first.bounding_box()
    assert squares.count() >= len(stores.WIDE["matrix"]["defense"])
    assert box is not None and box["width"] >= 44, "100.0 at 12 pixels is 34 wide"


def test_the_legend_keeps_its_colors_after_a_reader_pointed_at_a_square(reader, dashboard):
    """A gradient is named by the address, which changes: its bar was empty after the next drawing."""
    seen = reader(dashboard).open("matrix", run="short").shows("Matrix")
    seen.choose("Metric", FIGURES["worst_class_accuracy"].heading)
    chart = seen.charts().first
    legend = chart.locator(".role-legend").first
    before = hues(legend.screenshot())
    chart.locator('path[aria-label*="defense: median;"]').first.hover(force=True)
    expect(seen.page.locator("#vg-tooltip-element")).to_be_visible()
    after = hues(legend.screenshot())
    assert len(before) >= 3 and before == after
    assert not chart.locator("[fill^='url('], [stroke^='url(']").count()


def hues(picture: bytes) -> set[int]:
    """The colors of a picture, the pale ones left out, in sectors of the wheel."""
    colors = Image.open(io.BytesIO(picture)).convert("HSV").getcolors(1 << 24)
    return {hue // 32 for number, (hue, saturation, _) in colors if saturation > 80 and number > 20}
