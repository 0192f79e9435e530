"""The page Compare: which run stands beside the one looked at, where the address does not say."""

from __future__ import annotations

import pytest

import fedguard as fg
from fedguard.bench.results.compare import comparable
from tests.app.test_app import text_of, visit
from tests.stores import SHORT, break_manifest, copied, short
from tests.views import VIEWS

(COMPARE,) = [view for view in VIEWS if view.name == "compare"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """From the oldest to the latest: two that compare, one with an attack of its own, one that cannot be read."""
    made = tmp_path_factory.mktemp("compare") / "store"
    short(made)
    short(made, "longer", rounds=3)
    alone = SHORT | {"name": "alone", "matrix": {"attack": ["ipm"], "defense": ["mean", "median"]}}
    break_manifest(copied(fg.run(alone, store=made, jobs=1), made, "damaged"))
    return made


def test_comparable_means_a_position_in_common(store):
    one, other, alone = (fg.open_run(name, store) for name in ("short", "longer", "alone"))
    assert comparable(one, other) and comparable(other, one)
    assert not comparable(one, alone) and not comparable(alone, other)


def test_by_default_the_other_run_is_one_that_compares(store, monkeypatch):
    test = visit(store, monkeypatch, COMPARE, run="short")
    assert next(box for box in test.selectbox if box.label == "Compare with").value == "longer"
    assert "No other run of this store" not in text_of(test)
    assert "against" in str(test.dataframe[0].value.columns)


def test_where_no_run_compares_that_is_said(store, monkeypatch):
    test = visit(store, monkeypatch, COMPARE, run="alone")
    assert "No other run of this store has a position in common with this one" in text_of(test)


def test_the_address_has_the_last_word(store, monkeypatch):
    test = visit(store, monkeypatch, COMPARE, run="short", other="alone")
    assert next(box for box in test.selectbox if box.label == "Compare with").value == "alone"
    assert "No position could be compared" in text_of(test)
