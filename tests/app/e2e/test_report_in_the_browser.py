"""The report in a browser: printed, and read in light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedguard as fg
from fedguard.app.report import report
from tests.root import ROOT

pytestmark = pytest.mark.e2e
DEMO = ROOT / "examples" / "quick.yaml"


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> Path:
    """The report of the demo, with all of its cells and seeds and few of its rounds."""
    folder = tmp_path_factory.mktemp("report")
    run = fg.run(DEMO, store=folder / "runs", jobs=1, overrides=["training.rounds=4"])
    report(run, folder / "report.html")
    return folder / "report.html"


def test_the_demo_takes_seven_pages_at_most(browser, printed, shots):
    page = browser.new_page()
    page.goto(printed.as_uri())
    pdf = page.pdf(prefer_css_page_size=True)
    page.close()
    (shots / "report.pdf").write_bytes(pdf)
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 2 <= pages <= 7  # the seventh is the heat map of harm


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_its_text_can_be_told_from_its_ground(reader, printed, scheme):
    seen = reader(printed.as_uri(), color_scheme=scheme)
    seen.page.goto(printed.as_uri())
    assert not seen.faint()
