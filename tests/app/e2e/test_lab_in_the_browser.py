"""The Lab: what cannot run says why, what can is run by real workers, and Stop stops it."""

from __future__ import annotations

import re

import pytest
import yaml
from playwright.sync_api import expect

import fedguard as fg
from tests.app.e2e.conftest import serving

pytestmark = pytest.mark.e2e

#: A cell that trains for a second.
QUICK = {
    "seeds": "1",
    "training.rounds": "4",
    "clients.total": "6",
    "clients.malicious": "1",
    "attack": "sign_flip",
    "rule": "median",
}


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    """A dashboard with a store of its own, since the Lab writes into it."""
    folder = tmp_path_factory.mktemp("lab")
    with serving(folder / "runs", folder / "log") as address:
        yield folder / "runs", address


def suite_shown(seen) -> dict:
    return yaml.safe_load(seen.page.get_by_test_id("stCode").filter(has_text="schema: 1").inner_text())


def run_button(seen):
    return seen.page.get_by_test_id("stButton").get_by_role("button", name=re.compile("^Run"))


def test_the_menus_make_the_suite(reader, laboratory):
    seen = reader(laboratory[1]).open("lab", **QUICK).shows("Lab")
    suite = suite_shown(seen)
    assert suite["training"]["rounds"] == 4
    assert suite["matrix"] == {"attack": ["none", "sign_flip"], "defense": ["mean", "median"]}
    seen.choose("Rule", "krum")
    assert suite_shown(seen)["matrix"]["defense"] == ["mean", "krum"]


def test_what_is_illegal_says_why_and_cannot_be_run(reader, laboratory):
    seen = reader(laboratory[1]).open("lab", **QUICK).shows("Lab")
    expect(run_button(seen)).to_be_enabled()
    seen.choose("Secure aggregation", "full")
    assert "median needs each client's update" in seen.text()
    expect(run_button(seen)).to_be_disabled()
    seen.shot("lab-illegal")
    seen.choose("Rule", "mean")
    expect(run_button(seen)).to_be_enabled()


def ran(seen):
    """Press Run and wait for the result."""
    run_button(seen).click()
    expect(seen.page.get_by_role("heading", name="What came out")).to_be_visible(timeout=120_000)
    seen.idle()
    return seen


def test_a_run_shows_curves_and_a_result(reader, laboratory):
    store, address = laboratory
    seen = ran(reader(address).open("lab", **QUICK).shows("Lab"))
    assert seen.charts().count()
    seen.shot("lab-result")
    name = suite_shown(seen)["name"]
    assert {row["status"] for row in fg.open_run(name, store).rows()} == {"ok"}
    seen.page.get_by_role("link", name="This cell").click()
    seen.shows("Cell")
    assert (seen.box("attack").input_value(), seen.box("defense").input_value()) == ("sign_flip", "median")
    assert seen.box("Run").input_value() == name


def test_verdict_run_and_curves_are_on_the_first_screen(reader, laboratory):
    size = {"width": 1440, "height": 900}
    ran(reader(laboratory[1], viewport=size).open("lab", **QUICK).shows("Lab"))
    seen = reader(laboratory[1], viewport=size).open("lab", **QUICK).shows("Lab")
    for part in (seen.page.get_by_role("heading", name="May run:"), run_button(seen), seen.charts().first):
        box = part.bounding_box()
        assert box is not None and box["y"] + box["height"] <= 900


def test_stop_ends_the_workers_and_keeps_what_is_finished(reader, laboratory):
    seen = reader(laboratory[1]).open("lab", **{**QUICK, "training.rounds": "20000"}).shows("Lab")
    run_button(seen).click()
    expect(seen.charts().first).to_be_visible(timeout=60_000)  # the curves are drawn while it runs
    seen.page.screenshot(path=seen.shots / "lab-running.png")
    seen.page.get_by_role("button", name="Stop").click()
    expect(run_button(seen)).to_be_enabled(timeout=30_000)
    seen.idle()
    assert "trials are stored" not in seen.text()  # the progress bar is gone
