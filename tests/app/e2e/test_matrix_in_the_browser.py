"""The matrix stays readable: every name of a wide run in every window, and one panel at a time on a telephone."""

from __future__ import annotations

from itertools import pairwise

import pytest

import fedguard as fg

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("width", [390, 1000, 1440])
@pytest.mark.parametrize("run", ["wide", "everything"])
def test_every_name_stays_readable(reader, dashboard, store, run, width):
    seen = reader(dashboard, viewport={"width": width, "height": 900}).open("matrix", run=run).shows("Matrix")
    panel = seen.main.locator(".panel:visible").first
    names = panel.locator("thead th").all_inner_texts()[1:]
    assert names == list(dict.fromkeys(row["defense"] for row in fg.open_run(run, store).rows()))
    boxes = [box for one in panel.locator("tbody tr:first-child td").all() if (box := one.bounding_box())]
    assert all(left["x"] + left["width"] <= right["x"] for left, right in pairwise(boxes))
    panel.locator("thead th").last.scroll_into_view_if_needed()
    whole = seen.page.evaluate("() => document.documentElement.scrollWidth")
    assert whole <= width, "the panel scrolls, the page does not"


def test_a_telephone_shows_one_panel_at_a_time(reader, dashboard):
    seen = reader(dashboard, viewport={"width": 390, "height": 844}).open("matrix", run="everything").shows("Matrix")
    first = seen.main.locator(".fg:has(.tabs)").first
    assert first.locator(".panel:visible").count() == 1
    tabs = first.locator(".tabs label")
    tabs.last.click()
    assert first.locator(".panel:visible caption").inner_text() == tabs.last.inner_text()
    wide = reader(dashboard).open("matrix", run="everything").shows("Matrix").main.locator(".fg:has(.tabs)").first
    assert wide.locator(".panel:visible").count() == tabs.count() > 1
