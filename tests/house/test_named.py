"""Names in the literature, and their status: each row that says yes has tests, and these are there."""

from __future__ import annotations

import re

import pytest

from tests.root import ROOT

PAGE, TESTS = ((ROOT / "docs" / name).read_text() for name in ("named.md", "named_tests.md"))
ROWS = [
    (name, status) for name, status in re.findall(r"^\| (.+?) \| (.+?) \|", PAGE, re.MULTILINE) if status != "status"
]
SHOWN = dict(re.findall(r"^- (.+?): (`tests/.+)$", TESTS, re.MULTILINE))


def test_each_row_says_where_it_stands_and_those_that_run_are_shown():
    assert len(ROWS) > 25 and {status for _, status in ROWS} <= {"yes", "partly", "not yet"}
    runs = [name for name, status in ROWS if status != "not yet"]
    assert list(SHOWN)[: len(runs)] == runs


@pytest.mark.parametrize("name", SHOWN)
def test_each_test_that_is_named_is_there(name):
    found = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", SHOWN[name])
    assert len(found) == SHOWN[name].count("`") / 2
    for file, test in found:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{test}"
