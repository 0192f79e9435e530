"""What holds on every page: it opens, nothing goes wrong, nothing leaves the machine, and anybody can use it."""

from __future__ import annotations

import pytest

from fedguard.app.views import PAGES, pages
from tests import stores
from tests.app.e2e.conftest import serving
from tests.views import VIEWS

pytestmark = pytest.mark.e2e

each_view = pytest.mark.parametrize("view", VIEWS, ids=str)


@each_view
def test_a_page_by_its_address(reader, dashboard, view):
    sound(reader(dashboard).open(view.name, run="everything", **view.query), view, "light", "everything")


@each_view
def test_in_the_dark_with_malicious_names(visitor, dashboard, view):
    seen = visitor(dashboard, color_scheme="dark")
    sound(seen.come_back(view.name, run=stores.HOSTILE_NAME, **view.query), view, "dark", stores.HOSTILE_NAME)


def reached(seen, view):
    """The page and, of a page in parts, the part that was asked for."""
    seen.shows(view.page.title)
    for part in view.query.values():
        assert part in seen.main.get_by_role("radio", checked=True).all_inner_texts()
    return seen


def sound(seen, view, scheme, run):
    """A page is the one that was asked for, all of it can be read and named, its charts and pictures are described, and malicious
    names stay text."""
    reached(seen, view).shot(f"{view}-{scheme}")
    assert seen.box("Run").input_value() == run
    assert not seen.nameless()
    assert not seen.faint()
    for chart in seen.charts().all():
        assert len(chart.get_attribute("aria-label") or "") > 20, "a chart without a description"
    for picture in seen.main.locator("img").all():
        assert picture.get_attribute("alt"), "a picture without a description"
    assert not seen.page.locator("[onerror], img[src=x], a[href^=javascript], img[src*='example.com']").count()
    assert not seen.main.locator("strong", has_text="bold").count()


@each_view
def test_an_empty_store(visitor, empty_dashboard, view):
    visitor(empty_dashboard).come_back(view.name, **view.query).shows(view.page.title).shot(f"{view}-empty")


@each_view
def test_the_text_fits_a_telephone(visitor, dashboard, view):
    seen = visitor(dashboard, viewport={"width": 390, "height": 844})
    reached(seen.come_back(view.name, run="everything", **view.query), view).shot(f"{view}-narrow")
    assert not seen.overflowing()


def test_all_pages_are_reached_by_clicking(reader, dashboard):
    seen = reader(dashboard).open(run="short")
    navigation = seen.page.get_by_test_id("stSidebarNav")
    for section, those in PAGES.items():
        assert section in navigation.inner_text()
        for page in those:
            navigation.get_by_role("link", name=page.title, exact=True).click()
            seen.shows(page.title)
            assert seen.box("Run").input_value() == "short"
            assert "run=short" in seen.page.url, f"{page.name} lost the run"


def test_a_fresh_server_is_asked_for_a_deep_link_first(reader, tmp_path):
    with serving(tmp_path / "runs", tmp_path / "log") as address:
        reader(address).open("matrix", run="x").shows("Matrix").page.context.close()


def test_the_keyboard_reaches_the_navigation_and_the_run(reader, dashboard):
    seen = reader(dashboard).open("matrix", run="everything").shows("Matrix")
    reached: list[str] = []
    for _ in range(40):
        seen.page.keyboard.press("Tab")
        reached.append(
            seen.page.evaluate(
                "() => { const one = document.activeElement; return one.textContent || one.getAttribute('aria-label') || '' }"
            )
        )
    for page in pages().values():
        assert any(page.title in one for one in reached), f"{page.title}: {reached}"
    assert any("Run" in one for one in reached)
