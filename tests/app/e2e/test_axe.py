"""axe-core finds nothing serious on any page, light and dark, wide and narrow; what it finds in Streamlit's navigation is Streamlit's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedguard as fg
from fedguard.app.report import report
from tests.app.e2e.axe import Violation, script, violations
from tests.app.e2e.screenshots import SCHEMES, WINDOWS
from tests.views import VIEWS

pytestmark = pytest.mark.e2e

#: Of Streamlit's navigation: its items are two levels below their list
KNOWN = {"list", "listitem"}


@pytest.fixture(scope="session")
def axe() -> Path:
    source = script()
    if source is None:
        pytest.skip("axe-core is not installed: make axe")
    return source


def grave(found: list[Violation]) -> list[str]:
    return [str(one) for one in found if one.impact in ("serious", "critical")]


@pytest.mark.parametrize("view", VIEWS, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: str(window["width"]))
def test_no_page_breaks_a_grave_rule(visitor: Callable, dashboard: str, axe: Path, window, scheme, view):
    seen = visitor(dashboard, viewport=window, color_scheme=scheme)
    seen.come_back(view.name, run="everything", **view.query).shows(view.page.title)
    found = list(violations(seen.page, axe))
    assert not grave([one for one in found if not one.foreign])
    assert {one.rule for one in found if one.foreign} <= KNOWN, "more than is known of Streamlit's navigation"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_report_breaks_a_grave_rule(browser, axe, store, tmp_path, scheme):
    report(fg.open_run("everything", store=store), tmp_path / "report.html")
    page = browser.new_page(color_scheme=scheme)
    page.goto((tmp_path / "report.html").as_uri())
    found = grave(list(violations(page, axe)))
    page.close()
    assert not found


def test_a_planted_fault_is_found(reader, dashboard, axe):
    seen = reader(dashboard).open("matrix", run="everything").shows("Matrix")
    add = "where => document.querySelector(where).insertAdjacentHTML('beforeend', '<img src=\"data:,\"><button></button>')"
    for where in ("[data-testid=stMain]", "[data-testid=stSidebarNav]"):
        seen.page.evaluate(add, where)
    found = [(one.rule, one.foreign) for one in violations(seen.page, axe)]
    for rule in ("image-alt", "button-name"):
        assert {(rule, False), (rule, True)} <= set(found)
