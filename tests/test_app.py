"""The dashboard's page: with an empty store, a run, and a broken record; and the charts as data."""

from __future__ import annotations

import importlib.util

import pytest
from fedguard.app import charts
from streamlit.testing.v1 import AppTest

import fedguard as fg

SUITE = {
    "name": "tiny",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 3},
    "seeds": 2,
    "matrix": {"attack": ["none", "alie"], "defense": ["mean", "fltrust"]},
}
PAGE = importlib.util.find_spec("fedguard.app.main").origin


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"))


def page(store, monkeypatch) -> AppTest:
    monkeypatch.setenv("FEDGUARD_STORE", str(store))
    test = AppTest.from_file(PAGE, default_timeout=60).run()
    assert not test.exception
    return test


def test_empty_store_names_the_command(tmp_path, monkeypatch):
    test = page(tmp_path, monkeypatch)
    assert test.title[0].value == "FedGuard"
    assert [code.value for code in test.code] == [str(tmp_path), "fedguard run examples/quick.yaml"]


def test_a_run(run, monkeypatch):
    test = page(run.folder.path.parent, monkeypatch)
    assert test.title[0].value == "tiny"
    assert {metric.label: metric.value for metric in test.metric} == {
        "ok": "4",
        "refused": "4",
        "failed": "0",
        "missing": "0",
    }
    assert "Refused, and why" in [heading.value for heading in test.subheader]
    refused = test.dataframe[0].value
    assert set(refused["defense"]) == {"fltrust"}
    test.sidebar.selectbox[1].select("accuracy_drop").run()
    assert not test.exception
    next(box for box in test.selectbox if box.label == "Cell").select("alie against mean").run()
    assert not test.exception
    assert test.text[0].value.startswith("2 of 8 clients collude")


def test_a_broken_record_and_a_broken_manifest(tmp_path, monkeypatch):
    run = fg.run({**SUITE, "seeds": 1}, store=tmp_path)
    next(iter(run.folder.path.glob("cells/*/*.json"))).write_text("{")
    test = page(tmp_path, monkeypatch)
    assert "1 records are damaged" in test.warning[0].value
    (run.folder.path / "manifest.json").write_text("{")
    test = page(tmp_path, monkeypatch)
    assert test.error[0].value == "This run cannot be read."


def test_heatmap_holds_the_figures_of_the_matrix(run):
    rows = run.rows()
    data = {(row["attack"], row["defense"]): row for row in charts._positions(rows, "final_accuracy")}
    entry = run.table().blocks[""]["alie"]["mean"].estimate
    assert data["alie", "mean"]["mean"] == pytest.approx(entry.mean)
    assert data["alie", "fltrust"]["label"] == "refused"
    assert charts.heatmap(rows, "final_accuracy").to_dict()["layer"]


def test_curves_hold_every_evaluation(run):
    records = [record for record in run.records.values() if record["label"] == "alie against mean"]
    chart = charts.curves(records).to_dict()
    (points,) = chart["datasets"].values()
    assert len(points) == 2 * 3
    assert {point["seed"] for point in points} == {"0", "1"}
