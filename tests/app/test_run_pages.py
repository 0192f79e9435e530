"""The pages of one run: Overview, Matrix, Cell, Breakdown; with all that may happen to a cell, and with damaged files."""

from __future__ import annotations

import html
import json
import shutil

import pytest
from streamlit.testing.v1 import AppTest

import fedguard as fg
from fedguard.app import data
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.results.answer import standings
from fedguard.metrics.figures import FIGURES

SUITE = {
    "name": "tiny",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 3},
    "seeds": 2,
    "matrix": {"attack": ["none", "alie", "sign_flip"], "defense": ["mean", "median", "fltrust"]},
}
PAGE = """
import os
from pathlib import Path
import streamlit as st
from fedguard.app.here import PageContext
from fedguard.app.views import pages
known = {name: st.Page(lambda: None, url_path=name, title=name, default=name == "overview") for name in pages()}
st.navigation(list(known.values()))
pages()[os.environ["PAGE"]].show(PageContext(Path(os.environ["FEDGUARD_STORE"]), os.environ["RUN"] or None, known))
"""
HOSTILE = "<img src=x onerror=alert(1)> **bold** [here](https://example.org)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    matrix = {"clients.malicious": [0, 1, 2], "attack": ["none", "sign_flip"], "defense": ["mean", "median"]}
    suite = {**SUITE, "name": "swept", "clients": {"total": 8}, "matrix": matrix}
    return fg.run(suite, store=tmp_path_factory.mktemp("swept"), jobs=1)


@pytest.fixture
def copy(run, tmp_path):
    """The run in a store of its own, to be damaged."""
    shutil.copytree(run.folder.path, tmp_path / "tiny")
    return fg.open_run("tiny", store=tmp_path)


@pytest.fixture
def page(monkeypatch):
    def show(run, name, **query):
        monkeypatch.setenv("FEDGUARD_STORE", str(run.folder.path.parent))
        monkeypatch.setenv("RUN", run.name)
        monkeypatch.setenv("PAGE", name)
        test = AppTest.from_string(PAGE, default_timeout=60)
        for key, value in query.items():
            test.query_params[key] = value
        test.run()
        assert not test.exception
        return test

    return show


def table(test, column):
    """The first table with this column."""
    return next(one.value for one in test.dataframe if column in one.value.columns)


def changed(run, label, **changes):
    """Write another record, properly sealed, for seed 0 of a cell."""
    path = next(
        path for path in run.folder.path.glob("cells/*/seed-000.json") if f'"label": "{label}"' in path.read_text()
    )
    record = from_text(path.read_bytes())
    path.write_bytes(to_text({**record, **changes}))
    return record


def fail(run, label, reason):
    record = changed(run, label, status="failed", reason=reason, result=None, cost=None, flags=[])
    run.folder.log_path(record["cell"], 0).write_text(f"Traceback\n{HOSTILE}")
    return record


# --------------------------------------------------------------------------------------------------------- overview


def test_an_empty_store_names_the_command(run, page, tmp_path, monkeypatch):
    monkeypatch.setattr(type(run), "name", "")
    test = page(type(run)(type(run.folder)(tmp_path / "none"), run.manifest), "overview")
    (command,) = [code.value for code in test.code]
    assert command.startswith("fedguard run examples/quick.yaml")


def text_of(test):
    return html.unescape(" ".join(node.proto.body for node in test.main if node.type == "html"))


def test_overview_answers_with_a_sentence_a_chart_and_the_runs(run, page):
    test = page(run, "overview")
    said = text_of(test)
    assert f"<h1>{run.verdict().headline}</h1>" in said and "12 of 18 trials, 6 refused" in said
    assert len(test.get("vega_lite_chart")) == 2  # one for a narrow screen
    row = table(test, "state").iloc[0]
    assert (row["run"], row["state"], row["seeds"], row["cells refused"]) == ("tiny", "complete", 2, 3)


def test_headlines_are_the_means_of_the_records(run):
    rows = run.rows()

    def finals(attack, defense):
        return [row["final_accuracy"] for row in rows if (row["attack"], row["defense"]) == (attack, defense)]

    found = {one.defense: one for one in standings(run)}
    median = found["median"]
    under = {attack: sum(finals(attack, "median")) / 2 for attack in ("alie", "sign_flip")}
    assert median.worst.attack == min(under, key=under.get)
    assert median.worst.estimate.mean == pytest.approx(min(under.values()))
    assert median.clean == FIGURES["final_accuracy"].estimate(finals("none", "median"))
    lost = [mean - own for mean, own in zip(finals("none", "mean"), finals("none", "median"), strict=True)]
    assert median.tax.mean == pytest.approx(sum(lost) / 2)
    assert (median.measured, median.refused, median.unknown) == (2, 0, 0)
    assert found["fltrust"].worst is None
    assert found["fltrust"].texts()["worst of"] == "0 attacks, 2 refused"


def test_the_overview_of_a_sweep_lets_the_reader_choose_the_setting(swept, page):
    test = page(swept, "overview")
    (box,) = test.selectbox
    assert box.value == "clients.malicious = 1"  # of 0 there is no attack
    box.select("clients.malicious = 2").run()
    assert not test.exception
    assert test.query_params["setting"] == "clients.malicious = 2"


def test_a_worst_attack_says_that_another_failed(copy):
    fail(copy, "alie against median", "no such luck")
    median = next(
        one for one in standings(fg.open_run("tiny", store=copy.folder.path.parent)) if one.defense == "median"
    )
    assert (median.worst.attack, median.measured, median.unknown) == ("sign_flip", 1, 1)


def test_a_failure_shows_its_log_as_plain_text(copy, page):
    record = fail(copy, "alie against median", HOSTILE)
    said = text_of(page(copy, "cell", cell=record["cell"]))
    assert f"Traceback\n{HOSTILE}" in said and str(copy.folder.log_path(record["cell"], 0)) in said
    said = text_of(page(copy, "overview"))
    assert f"alie against median: {HOSTILE}" in said and "--retry-failed" in said


def test_a_damaged_record_is_counted_and_the_command_replaces_it(copy, page):
    next(iter(copy.folder.path.glob("cells/*/*.json"))).write_text("{")
    test = page(copy, "overview")
    assert "1 damaged records are left out" in text_of(test) and "fedguard run" in text_of(test)
    assert "1 missing, 1 damaged" in text_of(test)
    fg.run(copy.folder.path / "config.resolved.yaml", name="tiny", store=copy.folder.path.parent, jobs=1)
    assert not fg.open_run("tiny", store=copy.folder.path.parent).broken


def test_a_broken_manifest_is_a_row_that_says_so(copy, page):
    shutil.copytree(copy.folder.path, copy.folder.path.with_name("sound"))
    (copy.folder.path / "manifest.json").write_text("{")
    test = page(copy, "overview")
    assert test.title[0].value == "The manifest of this run cannot be read"
    states = table(test, "state").set_index("run")["state"]
    assert states["sound"] == "complete"
    assert states["tiny"] == "cannot be read"
    assert any(code.value.startswith("tiny: ") for code in test.code)  # and why, in full


# ----------------------------------------------------------------------------------------------------------- matrix


def test_the_matrix_has_its_metric_in_the_address_and_links_to_cells(run, page):
    test = page(run, "matrix", metric="worst_class_accuracy")
    (metric,) = test.selectbox
    assert metric.value == "worst_class_accuracy" and "Accuracy of the worst class in %" in text_of(test)
    assert 'href="cell?run=tiny&attack=sign_flip&defense=median"' in text_of(test)
    metric.select("accuracy_drop").run()
    assert not test.exception and test.query_params["metric"] == "accuracy_drop"
    assert page(run, "matrix", metric="<b>no such metric</b>").selectbox[0].value == "final_accuracy"
    metric, target = page(run, "matrix", metric="rounds_to(0.6)").selectbox
    assert (metric.value, target.value) == ("rounds_to", "60")


def test_a_breakdown_of_what_it_took_to_a_target_marks_what_never_got_there(swept):
    curves = swept.breakdown("clients.malicious", "rounds_to(1.0)")
    assert {entry.text() for curve in curves.curves for entry in curve.entries} == {">3"}
    assert {row["censored"] for row in curves.rows()} == {2}


# ------------------------------------------------------------------------------------------------------------- cell


def menus(test):
    return {box.label: box.value for box in test.selectbox}


def cell_of(run, **swept):
    return next(one["cell"] for one in run.manifest["positions"] if swept.items() <= one["swept"].items())


def test_the_address_names_the_cell_and_the_menus_follow_it_and_lead_it(run, page):
    asked = cell_of(run, attack="sign_flip", defense="median")
    test = page(run, "cell", cell=asked)
    assert menus(test) == {"attack": "sign_flip", "defense": "median"}
    test.selectbox[1].select("mean").run()
    assert not test.exception
    assert test.query_params["defense"] == "mean"
    assert menus(test) == {"attack": "sign_flip", "defense": "mean"}


def test_runs_of_the_lab_are_not_the_first(run, tmp_path):
    for name, started in (("older", 1), ("newer", 2), ("lab-alie-median-abc123", 3)):
        shutil.copytree(run.folder.path, tmp_path / name)
        (tmp_path / name / "manifest.json").write_text(json.dumps({**run.manifest, "name": name, "started": started}))
    found = data.run_names(tmp_path)
    assert found[-1] == "lab-alie-median-abc123" and set(found[:-1]) == {"older", "newer"}
