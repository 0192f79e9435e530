"""Ways through the dashboard: deep links that survive a reload, clicks that lead to what was clicked, damaged runs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import fedguard as fg
from fedguard.app.views import pages
from fedguard.metrics.figures import FIGURES
from tests import stores

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def short(store) -> fg.Run:
    return fg.open_run("short", store)


def cell_of(run: fg.Run, attack: str, defense: str) -> str:
    return next(row["cell"] for row in run.rows() if (row["attack"], row["defense"]) == (attack, defense))


def test_the_matrix_keeps_its_figure_over_a_reload(reader, dashboard):
    seen = reader(dashboard).open("matrix", run="everything").shows("Matrix")
    seen.choose("Metric", FIGURES["worst_class_accuracy"].heading)
    link = seen.page.url
    for other in (seen, reader(dashboard)):
        other.page.goto(link)
        other.shows("Matrix")
        assert other.box("Metric").input_value() == FIGURES["worst_class_accuracy"].heading
        assert other.box("Run").input_value() == "everything"


def test_the_run_is_kept_over_a_reload(reader, dashboard):
    seen = reader(dashboard).open(run="everything")
    for chosen in (
        "short",
        "longer",
    ):  # the latest is where the menu starts: its name must stand in the address as well
        seen.choose("Run", chosen)
        assert f"run={chosen}" in seen.page.url
        seen.page.reload()
        seen.shows("Overview")
        assert seen.box("Run").input_value() == chosen


@pytest.mark.parametrize(("attack", "defense"), [("none", "median"), ("sign_flip", "mean")])
def test_a_click_on_a_field_opens_that_very_cell(reader, dashboard, short, attack, defense):
    seen = reader(dashboard).open("matrix", run="short").shows("Matrix")
    seen.main.locator(f'.panel a[href*="attack={attack}&defense={defense}"]').first.click()
    seen.shows("Cell")
    assert f"attack={attack}&defense={defense}" in seen.page.url
    assert "run=short" in seen.page.url
    assert (seen.box("attack").input_value(), seen.box("defense").input_value()) == (attack, defense)
    seen.page.reload()
    seen.shows("Cell")
    assert (seen.box("attack").input_value(), seen.box("defense").input_value()) == (attack, defense)


def test_back_from_a_cell_is_the_matrix(reader, dashboard, short):
    seen = reader(dashboard).open("matrix", run="short").shows("Matrix")
    seen.main.locator('.panel a[href*="attack=sign_flip&defense=mean"]').first.focus()
    seen.page.keyboard.press("Enter")
    seen.shows("Cell")
    seen.page.go_back()
    seen.shows("Matrix")


def test_a_cell_by_its_address(reader, dashboard, short):
    cell = cell_of(short, "sign_flip", "median")
    seen = reader(dashboard).open("cell", run="short", cell=cell).shows("Cell")
    assert (seen.box("attack").input_value(), seen.box("defense").input_value()) == ("sign_flip", "median")
    seen.choose("attack", "none")
    assert "attack=none" in seen.page.url and "defense=median" in seen.page.url


def test_a_cell_that_is_not_there_is_said(reader, dashboard):
    seen = reader(dashboard).open("cell", run="short", cell="<b>nothing</b>").shows("Cell")
    assert "not in this run" in seen.text()


def test_a_refused_cell_says_why(reader, dashboard, store):
    run = fg.open_run("everything", store)
    row = next(row for row in run.with_status("refused") if row["defense"] == "median")
    seen = reader(dashboard).open("cell", run="everything", cell=row["cell"]).shows("Cell")
    assert "median needs each client's update" in seen.text()


def test_a_failed_cell_shows_its_log(reader, dashboard, store):
    row = fg.open_run("everything", store).with_status("failed")[0]
    seen = reader(dashboard).open("cell", run="everything", cell=row["cell"]).shows("Cell")
    assert f"ValueError: {stores.HOSTILE}" in seen.text()
    seen.page.get_by_text(re.compile("^The log of seed")).first.click()
    seen.idle()
    assert "Traceback (most recent call last)" in seen.text()


def test_an_algorithm_of_the_catalogue_by_its_address(reader, dashboard):
    seen = reader(dashboard).open("catalogue", name="krum").shows("Catalog")
    assert seen.box("In full").input_value() == "krum"
    seen.page.reload()
    seen.shows("Catalog")
    assert seen.page.get_by_role("heading", name=re.compile("krum")).count()


def test_a_damaged_record_is_told(reader, dashboard):
    seen = reader(dashboard).open(run="broken-record").shows("Overview")
    assert re.search(r"\b1 (damaged )?record", seen.text())


@pytest.mark.parametrize("name", [name for name, page in pages().items() if page.reads == "run"])
def test_a_damaged_manifest_is_told_in_a_line(reader, dashboard, name):
    seen = reader(dashboard).open(name, run="broken-manifest").shows(pages()[name].title)
    assert "manifest.json: cannot be read" in seen.text()


def test_two_runs_are_compared(reader, dashboard):
    seen = reader(dashboard).open("compare", run="longer", other="short").shows("Compare")
    assert seen.box("Compare with").input_value() == "short"
    assert seen.charts().count() == 2  # one of them for narrow pages
    expect(seen.page.locator("th", has_text="training.rounds")).to_be_attached()


def test_pictures_of_reconstructions_are_shown(reader, dashboard):
    seen = reader(dashboard).open("privacy", run="everything").shows("Privacy")
    picture = seen.main.locator("img").first
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("one => one.naturalWidth") > 50
