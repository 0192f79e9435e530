"""The tables of running statistics: the page shows what is kept, and what is kept shows what the page says."""

from __future__ import annotations

import json
from statistics import fmean

import fedguard as fg
from docs_tools.fates import KEPT_FILE, fates_table, keep, lies_table, tables
from tests.root import ROOT

KEPT = json.loads(KEPT_FILE.read_text())


def mean_of(run, **where):
    (cell,) = [one for one in KEPT[run]["cells"] if all(one[key] == value for key, value in where.items())]
    return fmean(cell["final_accuracy"])


def test_the_page_shows_each_table_that_is_kept():
    text = (ROOT / "docs" / "statistics.md").read_text()
    for name, table in tables(KEPT).items():
        assert table in text, name


def test_the_orders_that_the_page_states():
    (cell,) = KEPT["fashion_statistics"]["cells"]
    assert len(KEPT["fashion_statistics"]["seeds"]) == 5
    found = {fate: fmean(values) for fate, values in cell["compared"].items()} | {
        "weighted": fmean(cell["final_accuracy"])
    }
    frozen = fmean(KEPT["fashion_frozen"]["cells"][0]["final_accuracy"])
    assert max(found["initial"], frozen) < 0.12 < 0.36 < min(found[one] for one in ("average", "weighted", "pooled"))
    assert max(found["average"], found["weighted"], found["pooled"]) < found["recomputed"]
    above = [one - other for one, other in zip(cell["compared"]["recomputed"], cell["final_accuracy"], strict=True)]
    assert sum(one > 0 for one in above) == 4


def test_the_default_statistics_hold_95_percent_of_their_accuracy_under_each_lie():
    """And cost at most 2 points against `weighted` without a liar."""
    guarded = {"training.statistics": "(fate=recomputed, rule=trimmed_mean)"}
    clean = mean_of("statistics_lies", attack="none", **guarded)
    for attack in ("statistics_lie", "statistics_lie(what=mean, factor=100)"):
        assert mean_of("statistics_lies", attack=attack, **guarded) >= 0.95 * clean
        assert mean_of("statistics_lies", attack=attack, **{"training.statistics": "weighted"}) < 0.12
    assert clean >= mean_of("statistics_lies", attack="none", **{"training.statistics": "weighted"}) - 0.02


def test_what_is_kept_of_a_run_that_compares_fates(tmp_path):
    suite = {
        "name": "tiny", "task": {"data": "digits", "model": {"name": "resnet8", "norm": "batch"}, "subset": {"train": 80, "test": 60}},
        "clients": {"total": 4}, "training": {"rounds": 1}, "evaluation": {"statistics": ["initial", "average"]},
        "seeds": 2, "matrix": {"attack": ["none"], "defense": ["mean"]},
    }  # fmt: skip
    run = fg.run(suite, store=tmp_path, jobs=1)
    kept = {"tiny": keep(run)}
    records = list(run.ran.values())
    (cell,) = kept["tiny"]["cells"]
    assert kept["tiny"]["fate"] == "weighted"
    assert cell["compared"]["initial"] == [one["result"]["statistics"]["compared"]["initial"] for one in records]
    table = fates_table("tiny", kept)
    assert len(table.splitlines()) == 5 and "| `initial` |" in table


def test_no_rule_on_updates_replaces_a_rule_on_statistics():
    robust = {"defense": "nnm >> trimmed_mean"}
    guarded = {"training.statistics": "(fate=recomputed, rule=trimmed_mean)"} | robust
    clean = mean_of("statistics_lies_cnn", attack="none", **guarded)
    for attack in ("statistics_lie", "statistics_lie(layers=last)", "statistics_lie(what=mean, factor=100)"):
        assert mean_of("statistics_lies_cnn", attack=attack, **{"training.statistics": "weighted"}, **robust) < 0.12
        assert mean_of("statistics_lies_cnn", attack=attack, **guarded) >= 0.95 * clean


def test_a_table_of_lies_has_a_row_for_statistics_and_rule():
    cells = [
        {"training.statistics": fate, "attack": attack, "defense": rule, "final_accuracy": [0.5, 0.5]}
        for fate in ("weighted", "average")
        for rule in ("mean", "krum")
        for attack in ("none", "statistics_lie")
    ]
    lines = lies_table({"cells": cells}).splitlines()
    assert lines[0] == "| statistics | rule on updates | `none` | `statistics_lie` |"
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        [f"| `{fate}`", f"`{rule}`"] for fate in ("weighted", "average") for rule in ("mean", "krum")
    ]
