"""The results on four data sets: what is kept of a run is what its records hold, and the documents show what is kept."""

from __future__ import annotations

import json
import re
from statistics import fmean

import pytest

import fedguard as fg
from docs_tools.four_sets import FIGURES_FILE, accuracy_table, backdoor_table, condense, transposed_accuracy_table
from fedguard.errors import InputError
from tests.root import ROOT

SUITE = {
    "name": "tiny",
    "clients": {"total": 6, "malicious": 2},
    "training": {"rounds": 2},
    "seeds": 3,
    "matrix": {"attack": ["none", "model_replacement"], "defense": ["mean", "median"]},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    fg.run(SUITE, store=folder, jobs=1)
    return folder


def records(store):
    return [json.loads(path.read_text()) for path in store.glob("tiny/cells/*/seed-*.json")]


def test_what_is_kept_is_what_the_records_hold(store):
    kept = condense(fg.open_run("tiny", store))
    assert kept["seeds"] == [0, 1, 2]
    found = {
        (one["attack"], one["defense"]): (one["final_accuracy"], one.get("attack_success")) for one in kept["cells"]
    }
    assert list(found) == [(a, d) for a in ("none", "model_replacement") for d in ("mean", "median")]
    for defense in ("mean", "median"):
        known = sorted(
            (one["seed"], one["result"]["final_accuracy"], one["result"]["attack_success"])
            for one in records(store)
            if one["label"] == f"model_replacement against {defense}"
        )
        accuracy, success = found["model_replacement", defense]
        assert accuracy == [one[1] for one in known]
        assert success == [one[2] for one in known]
    assert kept["trials"] == len(records(store))
    assert kept["cpu_minutes"] == round(sum(one["cost"]["cpu_seconds"] for one in records(store)) / 60, 1)


def test_a_table_has_the_means_and_no_backdoor_where_none_is_planted(store):
    kept = condense(fg.open_run("tiny", store))
    lines = accuracy_table(kept).splitlines()
    assert lines[:2] == ["| attack | `mean` | `median` |", "| --- | --- | --- |"]
    one, other = (f"{100 * fmean(cell['final_accuracy']):.1f} [" for cell in kept["cells"][:2])
    assert re.fullmatch(rf"\| `none` \| {re.escape(one)}[^|]+ \| {re.escape(other)}[^|]+ \|", lines[2])
    assert transposed_accuracy_table(kept).splitlines()[0] == "| defense | `none` | `model_replacement` |"
    assert f"| `median` | {other}" in transposed_accuracy_table(kept)
    assert [line.split(" | ")[0] for line in backdoor_table(kept).splitlines()[2:]] == ["| `model_replacement`"]


def test_a_run_with_a_trial_that_is_missing_is_refused(store, tmp_path):
    fg.run({**SUITE, "seeds": 1}, store=tmp_path, jobs=1)
    run = fg.open_run("tiny", tmp_path)
    place = next(position for position in run.manifest["positions"] if position["swept"]["defense"] == "median")
    (tmp_path / "tiny" / "cells" / place["cell"] / "seed-000.json").unlink()
    with pytest.raises(
        InputError, match="expected every trial of the run; got 1 without figures: none against median, seed 0"
    ):
        condense(fg.open_run("tiny", tmp_path))


@pytest.mark.parametrize("document", ["docs/four_data_sets.md"])
def test_a_document_shows_what_is_kept(document):
    """Each table of the page, line by line, and each verdict."""
    text = (ROOT / document).read_text()
    for name, kept in json.loads(FIGURES_FILE.read_text()).items():
        assert accuracy_table(kept) in text, name
        assert " ".join(kept["verdict"].split()) in " ".join(text.split()), name
        assert f"{kept['cpu_minutes']} CPU minutes" in text, name


def test_the_readme_shows_fashion_mnist_as_it_is_kept():
    kept = json.loads(FIGURES_FILE.read_text())["fashion_cnn"]
    assert transposed_accuracy_table(kept) in (ROOT / "README.md").read_text()
