"""The pages of one run: Overview, Matrix, Cell, Breakdown; with all that may happen to a cell, and with damaged files."""

from __future__ import annotations

import html
import json
import shutil
from copy import deepcopy

import pytest
from streamlit.testing.v1 import AppTest

import fedguard as fg
from fedguard.app import data, words
from fedguard.app.charts.graph import by_round, graph, lay_out_nodes
from fedguard.app.charts.timeline import bars, timeline
from fedguard.app.views.cell import clean_models
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
    test = page(copy, "cell", cell=record["cell"])
    texts = [code.value for code in test.code]
    assert f"Traceback\n{HOSTILE}" in texts
    assert str(copy.folder.log_path(record["cell"], 0)) in texts
    assert any(HOSTILE in text for text in texts if "Traceback" not in text)
    shown = [*test.markdown, *test.caption, *test.subheader, *test.warning, *test.error, *test.info]
    assert not any("<img" in one.value or "example.org" in one.value for one in shown)
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
    assert f'href="cell?run=tiny&cell={cell_of(run, attack="sign_flip", defense="median")}"' in text_of(test)
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
    assert test.query_params["cell"] == cell_of(run, attack="sign_flip", defense="mean")
    assert menus(test) == {"attack": "sign_flip", "defense": "mean"}


def test_without_a_cell_the_one_in_which_an_attack_did_most_harm_is_shown(run, page):
    worst = min(
        (row for row in run.rows() if row["attack"] != "none" and row["status"] == "ok"),
        key=lambda row: sum(other["final_accuracy"] or 0 for other in run.rows() if other["cell"] == row["cell"]),
    )
    assert menus(page(run, "cell")) == {"attack": worst["attack"], "defense": worst["defense"]}


def test_a_cell_begins_with_its_verdict(run, page):
    test = page(run, "cell", cell=cell_of(run, attack="sign_flip", defense="median"))
    results = [run.records[cell_of(run, attack="sign_flip", defense="median"), seed]["result"] for seed in (0, 1)]
    under, clean = (
        f"{50 * sum(values):.1f} "
        for values in (
            [one["final_accuracy"] for one in results],
            [one["controls"]["clean_defense"] for one in results],
        )
    )
    said = test.markdown[0].value.replace("\\", "")
    assert said.startswith(f"##### sign_flip leaves median {under}") and f"of {clean}" in said
    clean_cell = words.verdict([run.records[cell_of(run, attack="none", defense="mean"), 0]])
    assert clean_cell.startswith("Without attack, mean reaches ")


def test_runs_of_the_lab_are_not_the_first(run, tmp_path):
    for name, started in (("older", 1), ("newer", 2), ("lab-alie-median-abc123", 3)):
        shutil.copytree(run.folder.path, tmp_path / name)
        (tmp_path / name / "manifest.json").write_text(json.dumps({**run.manifest, "name": name, "started": started}))
    found = data.run_names(tmp_path)
    assert found[-1] == "lab-alie-median-abc123" and set(found[:-1]) == {"older", "newer"}


def test_costs_have_a_column_for_each_seed(run):
    records = [run.records[cell_of(run, attack="alie", defense="median"), seed] for seed in (0, 1)]
    told = {row["fact"]: row for row in words.costs(records)}
    assert told["seconds"]["seed 1"] == f"{records[1]['cost']['seconds']:.2f}"
    assert told["status"] == {"fact": "status", "seed 0": "ok", "seed 1": "ok"}


def test_a_cell_shared_by_positions_keeps_the_menus_where_the_reader_put_them(copy, page):
    """Without attack it does not matter when it would have begun."""
    manifest = copy.manifest
    both = [
        {"cell": one["cell"], "swept": {"threat.first_round": first, **one["swept"]}}
        for first in ("1", "2")
        for one in manifest["positions"]
    ]
    changed = {**manifest, "swept": ["threat.first_round", *manifest["swept"]], "positions": both}
    (copy.folder.path / "manifest.json").write_text(json.dumps(changed))
    test = page(copy, "cell", cell=cell_of(copy, attack="none", defense="mean"))
    next(box for box in test.selectbox if box.label.startswith("threat")).select("2").run()
    assert [box.value for box in test.selectbox] == ["none", "mean", "2"]


def test_an_unknown_cell_is_told(run, page):
    test = page(run, "cell", cell="0123456789ab")
    assert "not in this run" in test.warning[0].value


def test_a_refused_cell_says_who_would_need_to_see_what(run, page):
    test = page(run, "cell", cell=cell_of(run, attack="alie", defense="fltrust"))
    assert test.warning[0].value == "Refused: this cell may not run."
    lacking = table(test, "which the server")
    assert "is not shown: root data" in set(lacking["which the server"])
    assert not test.get("vega_lite_chart")


def test_seeds_can_be_switched_off(run, page):
    test = page(run, "cell", cell=cell_of(run, attack="alie", defense="median"))
    figures = table(test, "figure").set_index("figure")["value"]
    finals = [row["final_accuracy"] for row in run.rows() if (row["attack"], row["defense"]) == ("alie", "median")]
    assert figures["final accuracy in %"] == f"{50 * sum(finals):.1f}"
    test.button_group[0].unselect(1).run()
    one = next(row for row in run.rows() if (row["attack"], row["defense"], row["seed"]) == ("alie", "median", 0))
    figures = table(test, "figure").set_index("figure")["value"]
    assert figures["final accuracy in %"] == f"{100 * one['final_accuracy']:.1f}"


def test_the_clean_model_is_the_same_training_without_attack(run, swept):
    for chosen, attack in ((run, "alie"), (swept, "sign_flip")):
        rows = [row for row in chosen.rows() if (row["attack"], row["defense"]) == (attack, "median")]
        records = [chosen.records[row["cell"], row["seed"]] for row in rows]
        records = [record for record in records if record["status"] == "ok"]
        assert records
        clean = {record["seed"]: record for record in clean_models(chosen, records)}
        for record in records:
            same = clean[record["seed"]]
            assert same["result"]["final_accuracy"] == record["result"]["controls"]["clean_defense"]
            assert same["threat_card"]["attack"] is None


def test_controls_are_those_of_the_records(run):
    records = [run.records[cell_of(run, attack="alie", defense="median"), seed] for seed in (0, 1)]
    rows = {row[""]: row for row in words.controls(records)}
    four = [record["result"]["controls"] for record in records]
    assert rows["attack"]["defense"].startswith(f"{50 * sum(one['attack_defense'] for one in four):.1f}")
    assert rows["nobody attacks"]["plain mean"].startswith(f"{50 * sum(one['clean_mean'] for one in four):.1f}")
    silent = rows["the malicious clients send nothing"]
    assert silent["plain mean"].startswith(f"{50 * sum(one['silent_mean'] for one in four):.1f}")
    assert silent["defense"].startswith(f"{50 * sum(one['silent_defense'] for one in four):.1f}")


def test_controls_of_actors_are_those_of_their_returns(run):
    """Guessing returns 20 and the best policy 220; the controls of accuracies stand empty beside them, silence included."""
    record = deepcopy(run.records[cell_of(run, attack="alie", defense="median"), 0])
    controls = {"clean_mean": 200, "clean_defense": 180, "attack_mean": 40, "attack_defense": 120}
    controls |= {"silent_mean": 170, "silent_defense": 160}
    result = record["result"]
    result["controls"] = dict.fromkeys(controls)
    result["returns"] = {
        "final": 120,
        "best": 130,
        "last": 120,
        "normalized": 0.5,
        "guess": 20,
        "perfect": 220,
        "episodes": 100,
    }
    result["returns"] |= {"controls": controls, "drop": 60, "absence": 20, "harm": 40, "tax": 20}
    shown = {row[""]: (row["plain mean"], row["defense"]) for row in words.controls([record])}
    assert shown["the malicious clients send nothing"] == ("75.0", "70.0")
    assert (shown["nobody attacks"], shown["attack"]) == (("90.0", "80.0"), ("10.0", "50.0"))


def test_the_card_keeps_every_line_of_the_record(run):
    card = run.records[cell_of(run, attack="alie", defense="median"), 0]["threat_card"]
    told = {row["fact"]: row["value"] for row in words.card(card)}
    assert told["malicious clients"] == "2" and told["attack"] == "alie"
    seen = {row["sees"]: row for row in words.sights(card)}
    assert seen["each update"]["rule does"] == "yes"
    assert seen["each update"]["attacker may"] == "-"


def test_the_page_of_a_cell_has_its_six_words(page, run):
    words_of = table(page(run, "cell", attack="alie", defense="median"), "aspect").set_index("aspect")["word"]
    assert words_of.to_dict() == {
        "data": "horizontal", "model": "linear", "privacy mechanism": "none", "architecture": "centralized",
        "scale": "cross-silo", "motivation": "incentive",
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------------- breakdown


def test_a_cell_in_simulated_time_shows_who_trained_when(page, tmp_path):
    """Every other training is lost, and three of eight are late: the bars are those of the record."""
    suite = {
        **SUITE, "name": "timed", "seeds": [5], "architecture": "google(over=1.6, least=0.1)",
        "clients": {"total": 8, "malicious": 2, "per_round": 5}, "matrix": {"attack": ["sign_flip"], "defense": ["mean"]},
        "network": {"compute": {"spread": 0.5}, "link": {"latency": 0.1, "loss": 0.3}},
    }  # fmt: skip
    run = fg.run(suite, store=tmp_path, jobs=1)
    _, record = next(iter(run.trials()))
    found = record["result"]["time"]["timeline"]
    drawn = bars(found)
    assert found["total"] == len(drawn) == sum(len(found[key]) for key in ("fate",))
    assert {one["fate"] for one in drawn} == {"arrived", "late", "lost"}
    assert {one["client"] for one in drawn if "malicious" in one["client"]} == {
        f"{client} malicious" for client in found["malicious"]
    }
    assert len(found["malicious"]) == 2
    assert len(found["rounds"]) == 3
    test = page(run, "cell")
    assert "Who trained when" in [one.value for one in test.subheader]
    said = next(one.value for one in test.caption if "trainings, each from the pull" in one.value)
    assert said.startswith("All trainings")
    chart = timeline(found).to_dict()
    held = [point for points in chart["datasets"].values() for point in points]
    assert [point for point in held if "fate" in point] == drawn
    assert [point["end"] for point in held if "end" in point] == found["rounds"]


def test_a_cell_without_a_server_shows_its_nodes(page, tmp_path):
    """A ring of six of which one is malicious: circles and crosses, links, and a slider over the evaluations."""
    suite = {
        **SUITE, "name": "linked", "seeds": [5], "architecture": "d_psgd", "clients": {"total": 6, "malicious": 1},
        "matrix": {"attack": ["sign_flip"], "defense": ["mean"]},
    }  # fmt: skip
    run = fg.run(suite, store=tmp_path, jobs=1)
    _, record = next(iter(run.trials()))
    found, rounds = record["result"]["nodes"], record["result"]["curve"]["round"]
    points = lay_out_nodes(found, 0)
    assert [point["node"] for point in points if point["who"] == "malicious"] == found["malicious"]
    assert [point["accuracy"] for point in points if point["who"] == "honest"] == [
        100 * value for value in found["curve"]["accuracy"][0]
    ]
    radii = [point["x"] ** 2 + point["y"] ** 2 for point in points]
    assert max(radii) - min(radii) < 0.05  # a ring is drawn as one
    test = page(run, "cell")
    assert "The nodes" in [one.value for one in test.subheader]
    said = next(one.value for one in test.caption if "honest nodes ends with" in one.value)
    assert f"The worst of 5 honest nodes ends with {100 * found['worst']:.1f} %" in said
    assert test.select_slider(key="round of a graph").options == [str(round) for round in rounds]
    held = [point for rows in graph(found, len(rounds) - 1).to_dict()["datasets"].values() for point in rows]
    assert 2 * len([one for one in held if "x2" in one]) == len(found["links"]) == 12  # a line for both directions
    lines = [point for rows in by_round(found, rounds).to_dict()["datasets"].values() for point in rows]
    worst = [one["accuracy"] for one in lines if one["of"] == "worst node"]
    assert worst == [100 * value for value in found["curve"]["worst"]]


def test_links_are_as_wide_as_what_they_carry(tmp_path):
    """Two sites of three: within a site whole vectors in each round, and between them a tenth in every second."""
    suite = {
        **SUITE, "name": "sites", "seeds": [5], "architecture": {"name": "wide_area", "every": 2, "top": 0.1},
        "clients": {"total": 6}, "matrix": {"attack": ["none"], "defense": ["mean"]},
    }  # fmt: skip
    _, record = next(iter(fg.run(suite, store=tmp_path, jobs=1).trials()))
    found, rounds = record["result"]["nodes"], record["result"]["rounds"]["total"]
    near, far = 2 * 2.6 * rounds, 2 * 0.52 * (rounds // 2)
    drawn = graph(found, 0).to_dict()
    widths = [point["kB"] for rows in drawn["datasets"].values() for point in rows if "kB" in point]
    assert sorted(widths) == pytest.approx([far] * 9 + [near] * 6)
    assert any("size" in layer["encoding"] and layer["encoding"]["size"]["field"] == "kB" for layer in drawn["layer"])


def test_a_cell_with_a_server_has_no_nodes(run, page):
    assert "The nodes" not in [one.value for one in page(run, "cell").subheader]


def test_a_cell_without_simulated_time_has_no_timeline(run, page):
    assert "Who trained when" not in [one.value for one in page(run, "cell").subheader]
