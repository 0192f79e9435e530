"""Breakdown in weight from a suite to its record, the page, the terminal and the kept figures of `docs/cross_silo.md`."""

from __future__ import annotations

import json

import pytest

import fedguard as fg
from docs_tools.cross_silo import FIGURES_FILE, accuracy_table, condense, weight_table
from fedguard.bench.pages.blocks import TableBlock
from fedguard.bench.pages.breakdown import BREAKDOWN
from fedguard.bench.results.in_weight import weight_breakdowns
from fedguard.registry import load_registry
from fedguard.robustness.weight import breakdown_in_weight
from tests.forked import fedguard
from tests.root import ROOT
from tests.systems.scenes import cell

SUITE = {
    "name": "unequal",
    "clients": {"total": 4},
    "training": {"rounds": 1},
    "seeds": 2,
    "evaluation": {"weight_breakdown": True},
    "matrix": {
        "task.partition": [{"name": "iid", "sizes": [60, 20, 15, 5]}],
        "clients.malicious": [["site 1"], ["site 2"]],
        "attack": ["none", "sign_flip"],
        "defense": ["mean", "weighted_median"],
    },
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = tmp_path_factory.mktemp("unequal") / "runs"
    fg.run(SUITE, store=made, jobs=1)
    return made


def test_the_record_holds_what_the_meter_finds(store):
    run = fg.open_run("unequal", store)
    rule = load_registry().pipeline("weighted_median")
    for swept, record in run.trials():
        found, sizes = record["result"]["weight_breakdown"], [862, 287, 216, 72]
        assert found["shares"] == pytest.approx([size / 1437 for size in sizes], abs=1e-9)
        if swept["defense"] == "weighted_median":
            meant = breakdown_in_weight(rule, sizes, 1)
            assert (found["least"], found["evaluations"]) == (meant.least, meant.evaluations)
            assert found["sites"] == ["site 1"] and found["pull"] == [None, 0, 0, 0]
        else:
            assert found["sites"] == ["site 4"] and found["pull"] == [None] * 4
    assert [row["defense"] for row in weight_breakdowns(run)] == ["mean", "weighted_median"]


def test_the_page_shows_a_table_where_a_suite_asks_for_it(store):
    run = fg.open_run("unequal", store)
    (table,) = [one for one in BREAKDOWN.blocks(run, {}) if isinstance(one, TableBlock)]
    assert [one.name for one in table.columns][:5] == ["defense", "f", "least weight, %", "of", "site 1, 60.0 %"]
    assert table.rows == [
        ["mean", 1, "5.0", "site 4", *["no bound"] * 4],
        ["weighted_median", 1, "60.0", "site 1", "no bound", "0.00", "0.00", "0.00"],
    ]


def test_the_commands_print_it(store):
    said = fedguard("breakdown", "unequal", "--over", "clients.malicious", cwd=store.parent).stdout
    assert "Breakdown in weight" in said and "no bound" in said
    made = json.loads(
        fedguard("breakdown", "unequal", "--json", "--over", "clients.malicious", cwd=store.parent).stdout
    )
    assert [row["least"] for row in made["in_weight"]] == pytest.approx([72 / 1437, 862 / 1437])


def test_it_is_there_only_if_asked_for():
    asked, usual = cell(evaluation={"weight_breakdown": True}), cell()
    assert usual.id == cell(evaluation={"weight_breakdown": False}).id != asked.id
    assert "weight_breakdown" not in usual.canonical["evaluation"] and asked.canonical["evaluation"]["weight_breakdown"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clients": {"total": 13}}, "tries each set of clients, of which there are up to 12; clients.total is 13"),
        ({"defense": "fltrust", "server": {"root_data": 50}}, "shows a rule updates alone, and fltrust needs more"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_it_runs(changes, said):
    assert any(said in reason for reason in cell(evaluation={"weight_breakdown": True}, **changes).verdict.reasons)


def test_what_is_kept_is_what_the_records_hold(store):
    run = fg.open_run("unequal", store)
    kept = condense(run)
    assert [(one["partition"], one["site"], one["attack"], one["defense"]) for one in kept["cells"]] == [
        ("alike", "", "none", "mean"),
        ("alike", "", "none", "weighted_median"),
        ("alike", "site 1", "sign_flip", "mean"),
        ("alike", "site 1", "sign_flip", "weighted_median"),
        ("alike", "site 2", "sign_flip", "mean"),
        ("alike", "site 2", "sign_flip", "weighted_median"),
    ]
    for one in kept["cells"]:
        rows = [
            row["final_accuracy"]
            for row in run.rows()
            if (row["attack"], row["defense"]) == (one["attack"], one["defense"])
            and one["site"] in ("", row["clients.malicious"])
        ]
        assert one["final_accuracy"] == rows[:2]
    assert kept["in_weight"] == weight_breakdowns(run)


def test_the_document_shows_what_is_kept():
    text, kept = (ROOT / "docs" / "cross_silo.md").read_text(), json.loads(FIGURES_FILE.read_text())
    for table in (accuracy_table(kept, "alike"), accuracy_table(kept, "skewed"), weight_table(kept)):
        assert table in text
    assert f"{kept['trials']:,} trials, controls included, took {kept['cpu_minutes']} CPU minutes" in text
    assert kept["cpu_minutes"] <= 10 and len(kept["seeds"]) == 5


def test_kept_breakdowns_are_those_of_the_code():
    """Of the rules that take a moment."""
    kept = {row["defense"]: row for row in json.loads(FIGURES_FILE.read_text())["in_weight"]}
    for text in ("mean", "weighted_mean", "median"):
        sizes = [round(1437 * share) for share in kept[text]["shares"]]
        found = breakdown_in_weight(load_registry().pipeline(text), sizes, kept[text]["f"])
        assert kept[text]["least"] == found.least
        assert [None if pull == float("inf") else pull for pull in found.pull] == pytest.approx(kept[text]["pull"])
