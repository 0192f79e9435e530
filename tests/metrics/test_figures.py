"""The table of figures: every row is read from records that the schema lets through, and stands where it says."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from docs_tools.records import pages
from fedguard.app.lab.result import controls
from fedguard.app.report import render_report
from fedguard.bench.flags.columns import COLUMNS
from fedguard.bench.gate.pair import select_figures
from fedguard.bench.pages.cell_facts import metrics
from fedguard.bench.pages.matrix import heatmaps
from fedguard.bench.records.record import from_text
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.export import write_rows
from fedguard.bench.results.run import Run
from fedguard.bench.results.trilemma import LEAKAGE
from fedguard.bench.running.inference.scores import headline
from fedguard.config.schema import GateSection
from fedguard.metrics.figures import FIGURES, PRIVACY_GOALS
from tests.root import ROOT

OLD = ROOT / "tests" / "first_edition"

#: What the records of `OLD` have no value of, or no part to hold one.
PARTS = {
    "filter": {"precision": 0.5, "recall": 0.5, "honest_excluded": 0.5, "most_excluded": None},
    "durability": {"rounds": 1, "survived": False},
    "parties": {"classes": [[0, 1], [2, 3]], "accuracy": [0.5, None], "worst": 0.5},
    "evasion": {"attack": "pgd(eps=0.1)", "examples": 360, "clean": 0.9, "accuracy": 0.5},
    "returns": {
        "final": 0.5, "best": 0.5, "last": 0.5, "normalized": 0.5, "guess": 0.0, "perfect": 1.0, "episodes": 100, "drop": 0.1,
        "absence": 0.1, "harm": 0.1, "tax": 0.1,
        "controls": dict.fromkeys(("clean_mean", "clean_defense", "attack_mean", "attack_defense", "silent_mean", "silent_defense")),
    },
    "nodes": {
        "honest": [0], "accuracy": [0.5], "worst": 0.5, "best": 0.5, "tenth": 0.5, "spread": 0.1, "mean_model": 0.5,
        "consensus": 0.5, "messages": 1, "abandoned": 0, "links": [], "malicious": [],
        "curve": {"accuracy": [], "worst": [], "best": [], "mean_model": [], "consensus": []},
    },
    "time": {
        "seconds": 1.0, "computed": 1.0, "joules": 1.0, "bytes_up": 1, "bytes_down": 1, "updates_a_second": 1.0, "releases": 1,
        "staleness": {"mean": 0.5, "largest": 1, "counts": [1, 1]}, "late": 0, "interrupted": 0, "lost": 0, "malicious_share": 0.1,
    },
}  # fmt: skip
SEAT = {"place": "nodes", "nodes": [0], "solved": {"1": 1.0}, "whole": 1, "off": None}
#: Figures that are whole numbers.
COUNTS = {"durability": 3.0, "solved_updates": 5.0}
#: By attack, what a record holds of goals that the first edition's suite did not have.
LATER = {
    "property_inference": {
        "goal": "property",
        "targets": [{"clients": [0], "score": 0.5, "holds": True}],
        "score": {"auc": None},
    },
    "dager": {
        "goal": "text",
        "targets": [
            {
                "clients": [0],
                "texts": 1,
                "tokens": 2,
                "claimed": 2,
                "recall": 0.5,
                "precision": 0.5,
                "f1": 0.5,
                "trivial": 0.5,
            }
            | {"gain": 0.0, "rouge_l": None, "rank": 2}
        ],
        "score": dict.fromkeys(("recall", "precision", "gain", "rouge_l", "rank")),
    },
}


@pytest.fixture(scope="module")
def values():
    """A value of each figure, no two alike."""
    return {name: COUNTS.get(name) or (2 + number) / 64 for number, name in enumerate(FIGURES)}


@pytest.fixture(scope="module")
def run(tmp_path_factory, values):
    """A run in which every figure has its value: one attack on the training, and one of each goal of those on privacy."""
    folder = tmp_path_factory.mktemp("runs") / "figures"
    shutil.copytree(OLD, folder)
    for attack in LATER:
        _with_a_later_attack(folder, attack)
    store = RunFolder(folder)
    for path in folder.glob("cells/*/*.json"):
        record = from_text(path.read_bytes())
        goal = record["threat_card"]["goal"]
        if record["threat_card"]["attack"]:
            record["result"] |= PARTS
            if goal == "reconstruction":
                record["result"]["inference"]["seat"] = SEAT
            for name, figure in FIGURES.items():
                if goal == figure.goal or (goal not in PRIVACY_GOALS and figure.goal in ("training", "any")):
                    *above, last = figure.path
                    part = record
                    for key in above:
                        part = part[key]
                    part[last] = int(values[name]) if name in COUNTS else values[name]
            store.write(record)
    return Run.open(folder)


def _with_a_later_attack(folder: Path, attack: str) -> None:
    """The inference of labels replaces one that the first edition's suite did not have."""
    manifest = json.loads((folder / "manifest.json").read_text())
    like = next(one for one in manifest["positions"] if one["swept"]["attack"] == "labels_counts")
    manifest["positions"].append({"cell": attack, "swept": {**like["swept"], "attack": attack}})
    (folder / "manifest.json").write_text(json.dumps(manifest))
    record = RunFolder(folder).read(like["cell"], 0)
    record["threat_card"] |= {"attack": attack, "goal": LATER[attack]["goal"]}
    record["result"]["inference"] |= {"attack": attack, **LATER[attack]}
    (folder / "cells" / attack).mkdir()
    RunFolder(folder).write({**record, "cell": attack})


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_read_from_its_place_in_a_record(run, values, name):
    """The schema drops what it does not know, and so a figure that it does not know would be None."""
    found = {row["attack"]: row[name] for row in run.rows() if row[name] is not None and row["attack"] != "none"}
    assert values[name] in found.values()
    if FIGURES[name].goal in PRIVACY_GOALS:
        assert len(found) == 1, "another goal's attack has no such figure"


@pytest.fixture(scope="module")
def said(run):
    """Where a figure may stand, what is said there in full."""
    return {
        "show": "\n".join(one.title[1:] for one in heatmaps(run, "show")),
        "drawn": "\n".join(one.title[1:] for one in heatmaps(run, "report")),
        "report": render_report(run).decode(),
        "lab": " ".join(controls(run)[0]),
        "docs": pages()["reference/figures.md"],
    }


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_stands_where_its_row_says(run, values, said, tmp_path, name):
    figure = FIGURES[name]
    entry = f"{figure.text(values[name])}"
    assert name in run.figures
    assert any(
        entry == one.text() for rows in run.table(name).blocks.values() for row in rows.values() for one in row.values()
    )
    assert (figure.heading[1:] in said["show"]) == ("show" in figure.shown)
    assert (figure.title in said["lab"]) == ("lab" in figure.shown)
    assert figure.heading[1:] in said["report"], "drawn, or among every other figure"
    assert (figure.heading[1:] in said["drawn"]) == ("report" in figure.shown)
    assert (name in LEAKAGE) == ("trilemma" in figure.shown)
    assert f"<code>{name}</code>" in said["docs"]
    its = [row[1] for record in run.ran.values() for row in metrics([record]).rows if row[0] == figure.heading]
    assert entry in its, "on the page of a cell"
    write_rows(run, tmp_path / "rows.csv", "csv")
    with (tmp_path / "rows.csv").open() as file:
        assert str(values[name]) in {row[name] for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", FIGURES)
def test_a_gate_and_lint_know_a_figure_by_its_row(name):
    figure = FIGURES[name]
    assert [one.figure for one in select_figures(GateSection(), [name])] == [name] * figure.watched
    if figure.margin is None:
        with pytest.raises(ValueError, match="metrics"):
            GateSection(metrics={name: {}})
    else:
        (one,) = select_figures(GateSection(metrics={name: {}}), [])
        assert (one.margin, one.higher_is_better) == (figure.margin, figure.more_is_better)
    assert [column.aliases for column in COLUMNS if column.name == name and name != "epsilon"] == [
        figure.aliases
    ] * bool(figure.aliases)


@pytest.mark.parametrize("goal", PRIVACY_GOALS)
def test_no_figure_of_an_attack_on_privacy_is_without_a_row(goal):
    """What a trial stores as its score is what the table reads."""
    rate = {"value": 0.5, "interval": None}
    target = {
        "psnr": {"mean": 1.0}, "ssim": {"mean": 1.0}, "gain": {"mean": 1.0} if goal == "reconstruction" else 0.1, "label_accuracy": 0.5,
        "recovered": 0.5, "accuracy": 0.5, "auc": rate, "not_numbers": 0, "score": 0.5, "holds": True, "scores": {"members": [1.0], "non_members": [0.0]},
    }  # fmt: skip
    stored = headline(goal, [target, {**target, "holds": False}])
    assert set(stored) == {
        figure.path[-1] for figure in FIGURES.values() if figure.goal == goal and "score" in figure.path
    }
