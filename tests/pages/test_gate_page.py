"""The gate's page as a list of blocks: the worst cell first, figures as they were judged, every verdict in its column."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

import fedguard as fg
from fedguard.bench.gate.verdict import WORDS, GateVerdict, Judgment, SuiteJudgment
from fedguard.bench.gate.verdict_store import keep, verdicts
from fedguard.bench.gate.work import gate, make_baseline
from fedguard.bench.pages.blocks import Chart, Checks, Choice, Diff, More, Prose, TableBlock
from fedguard.bench.pages.gate import GATE, describe_verdict
from fedguard.bench.pages.gate_chart import MARKS, against_baseline, history
from tests.app.test_app import text_of, visit
from tests.stores import HOSTILE
from tests.views import VIEWS

SUITE = {
    "name": "watched",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 3},
    "seeds": 3,
    "gate": {"confirm": 3},
    "matrix": {"attack": ["none", "sign_flip"], "defense": ["mean", "median"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that passed against its own baseline, could not be judged, and fell below one that was 15 points better in one cell."""
    store = tmp_path_factory.mktemp("gated")
    made = fg.run(SUITE, store=store, jobs=1)
    baseline, better, other = (store / f"{name}.json" for name in ("baseline", "better", "other"))
    make_baseline(made, "the first one", jobs=1).write(baseline)
    gate(made, baseline, jobs=1)
    content = json.loads(baseline.read_text())
    content["snapshot"]["results_version"] -= 1
    other.write_text(json.dumps(content))
    gate(made, other, jobs=1)
    content["snapshot"]["results_version"] += 1
    raised = made.manifest["positions"][0]["cell"]
    values = content["snapshot"]["cells"][raised]["values"]["final_accuracy"]
    content["snapshot"]["cells"][raised]["values"]["final_accuracy"] = {
        seed: value + 0.15 for seed, value in values.items()
    }
    content["snapshot"]["environment"]["torch"] = "0.0.1"
    better.write_text(json.dumps(content))
    gate(made, better, jobs=1)
    return made


def of_type(blocks, kind: type) -> list:
    return [one for one in blocks if isinstance(one, kind)]


def judgment(word: str = "regressed", **more) -> Judgment:
    known = {"swept": {"attack": "alie", "defense": "krum"}, "cell": "0" * 12, "figure": "final_accuracy", "verdict": word,
             "why": "worse by 6.1 points.", "before": 0.9, "after": 0.839, "drop": 0.061, "margin": 0.02, "seeds": (0, 1, 2),
             "confirmed_on": (7, 8, 9, 10), "p_value": 0.004}  # fmt: skip
    return Judgment(**{**known, **more})


def verdict(*judgments: Judgment, **more) -> GateVerdict:
    known = {"run": "r", "baseline": "b.json", "time": 1.8e9, "commit": "abc", "baseline_commit": "def"}
    return GateVerdict(**{**known, "judgments": judgments, **more})


def test_a_planted_drop_is_the_headline_with_its_figures(run):
    blocks = list(GATE.blocks(run, {}))
    (found,) = [one for one in verdicts(run.folder)[-1].judgments if one.verdict == "regressed"]
    assert blocks[0].headline.startswith(
        "Regressed: final accuracy is worse by 15.0 points in no attack against mean, confirmed on 3 fresh"
    )
    assert (
        blocks[0].lead[0]
        == f"{100 * found.before:.1f} % before, {100 * found.after:.1f} % now; the margin is 2.0 points."
    )
    assert blocks[0].tone == "bad" and blocks[0].chips[0].text == "✗ exit code 3"
    assert blocks[0].chips[1].text.startswith("1 regressed, ")
    assert blocks[0].actions[0].query == found.swept
    assert "baseline update watched" in blocks[0].actions[1].command
    (items,) = of_type(blocks, Checks)
    assert items.items[0].scope == "regressed" and "fresh seeds: confirmed" in items.items[0].text
    assert [chart.title for chart in of_type(blocks, Chart)] == [
        "Final accuracy against the baseline",
        "Every verdict of this gate",
    ]


def test_bars_are_the_figures_of_the_judgments_with_the_margin_on_the_worse_side():
    chart = against_baseline([judgment(), judgment("pass", drop=-0.01, after=0.91, p_value=None)])
    first, second = chart.spec["data"]["values"]
    assert (first["before"], first["after"], first["limit"]) == pytest.approx((90.0, 83.9, 88.0))
    assert first["label"] == "▼ \N{MINUS SIGN}6.1, p = .004 on 4 fresh seeds" and second["label"] == "✓ +1.0"
    assert chart.table.rows[0][:6] == ["alie against krum", "▼ regressed", "90.0", "83.9", "\N{MINUS SIGN}6.1", "2.0"]
    less = against_baseline([judgment(figure="attack_success", before=0.1, after=0.3, drop=0.2, margin=0.05)])
    assert less.spec["data"]["values"][0]["limit"] == pytest.approx(15.0) and "+20.0" in less.table.rows[0][4]
    assert chart.narrow["width"] <= 358
    quiet = [judgment("pass", drop=-0.001 * number) for number in range(30)]
    many = against_baseline([*quiet, judgment()])
    assert len(many.table.rows) == 12 and many.table.rows[0][1] == "▼ regressed"
    assert many.note.startswith("19 more cells") and many.table.compare.startswith("19 more")


def test_a_metric_without_drops_is_drawn_without_rows_and_its_reason_is_given():
    missing = judgment("missing", before=None, after=None, drop=None, p_value=None, why="not run.")
    blocks = list(describe_verdict(verdict(missing)))
    assert not of_type(blocks, Chart)
    assert blocks[0].headline == "Cannot judge: 1 of 1 judgments have no value, such as alie against krum: not run."
    assert of_type(blocks, Checks)[0].items[0].text == "alie against krum: not run."


def test_the_worst_cell_in_margins_is_named_then_the_suite_then_an_epsilon():
    worse = judgment(swept={"attack": "ipm", "defense": "mean"}, drop=0.05, margin=0.01)
    assert "worse by 5.0 points in ipm against mean" in next(describe_verdict(verdict(judgment(), worse))).headline
    broad = SuiteJudgment(
        figure="final_accuracy",
        verdict="regressed",
        why="worse by 1.2 points on average over 9 cells.",
        drop=0.012,
        p_value=0.003,
        cells=9,
        seeds=3,
    )
    said = next(describe_verdict(verdict(judgment("pass", drop=0.0), broad=(broad,))))
    assert (
        said.headline
        == "Regressed: final accuracy over the whole suite, though no single cell shows it: worse by 1.2 points on average over 9 cells."
    )
    audit = {
        "cells": [""],
        "subject": "noise",
        "verdict": "violated",
        "words": "no",
        "claimed": 31.147792214831075,
        "bound": {"epsilon": 1.23456},
    }
    blocks = list(describe_verdict(verdict(judgment("pass", drop=0.0), audits=(audit,))))
    assert blocks[0].headline == "Regressed: the epsilon of noise does not hold."
    (table,) = of_type(blocks, TableBlock)
    assert table.rows == [["noise", "violated", "31.15", "1.235", "no", "every cell"]]
    assert (
        next(describe_verdict(verdict(judgment("pass", drop=0.0)))).headline
        == "Passed: no drop beyond its margin is found in the one cell."
    )
    bound = judgment(drop=None, p_value=None, why="the mean of 80 % is below the floor of 85 %.")
    assert next(describe_verdict(verdict(bound))).headline.endswith(
        "final accuracy in alie against krum: the mean of 80 % is below the floor of 85 %."
    )


def test_what_changed_is_shown_in_every_verdict(run):
    rows = {key: (before, after) for key, before, after in of_type(GATE.blocks(run, {}), Diff)[0].rows}
    assert rows["torch"][0] == "0.0.1"
    said = (
        "the code of the plug-in house was 11111111, is 22222222.",
        "the gate's thresholds changed: gate.alpha was 0.05, is 0.1.",
        "2 positions are new.",
    )
    for word in WORDS:
        blocks = list(describe_verdict(verdict(judgment(word), warnings=said)))
        assert of_type(blocks, Diff)[0].rows == [
            ("commit", "def", "abc"),
            ("the code of the plug-in house", "11111111", "22222222"),
            ("gate.alpha", "0.05", "0.1"),
        ]
        assert of_type(blocks, Prose)[0].paragraphs == ["2 positions are new."]
    same = list(describe_verdict(verdict(judgment("pass"), baseline_commit="abc")))
    assert not of_type(same, Diff) and "are the same" in of_type(same, Prose)[0].paragraphs[0]


def test_every_verdict_is_a_column_and_what_could_not_be_judged_says_why(run):
    chart = history(verdicts(run.folder))
    heads = [column.name for column in chart.table.columns]
    assert [head.split()[0] for head in heads[1:]] == ["#1", "#2", "#3"]
    assert chart.table.rows[0] == ["verdict", "✓ passed", "? cannot judge", "▼ regressed"]
    row = dict(zip(heads, next(row for row in chart.table.rows if row[0] == "no attack against mean"), strict=True))
    values = list(row.values())
    assert (
        values[1].startswith("= ")
        and values[2] == "? not judged"
        and values[3].startswith("▼ ")
        and values[3].endswith("\N{MINUS SIGN}15.0")
    )
    assert chart.table.rows[1][0] == "no attack against mean", "what changed stands first"
    assert "#2 could not judge: the baseline is of results version" in chart.note and chart.note.endswith(
        "Resolved in #3."
    )
    many = history([replace(verdicts(run.folder)[0], time=1.8e9 + 60 * number) for number in range(11)])
    assert len(many.table.columns) == 9 and many.note.startswith("3 earlier verdicts are not shown.")
    assert len({one["column"] for one in many.narrow["data"]["values"]}) == 3


def test_no_word_is_told_by_its_color_alone():
    assert set(MARKS) == set(WORDS) and len({symbol for symbol, _, _ in MARKS.values()}) == len(WORDS)
    assert len({shape for _, _, shape in MARKS.values()}) == len(WORDS)


def test_an_earlier_verdict_by_the_address_and_the_commands_where_there_is_none(run, tmp_path):
    (choice,) = of_type(GATE.blocks(run, {}), Choice)
    assert len(choice.options) == 3 and choice.chosen == choice.options[0]
    earlier = list(GATE.blocks(run, {"verdict": choice.options[-1]}))
    assert earlier[0].headline == "Passed: no drop beyond its margin is found in 4 cells." and earlier[0].tone == "good"
    shutil.copytree(run.folder.path, tmp_path / "unjudged", ignore=shutil.ignore_patterns("gate"))
    (only,) = GATE.blocks(fg.open_run(tmp_path / "unjudged"), {})
    assert [one.command for one in only.actions] == [
        f"fedguard baseline save unjudged --to baseline.json --store {tmp_path}",
        f"fedguard gate unjudged --baseline baseline.json --store {tmp_path}",
    ]


def test_a_broken_verdict_is_left_out_and_named_and_hostile_texts_are_text(run, tmp_path, monkeypatch):
    folder = shutil.copytree(run.folder.path, tmp_path / "store" / "hostile")
    (folder / "gate" / "9999999999.json").write_text("{")
    copied = fg.open_run(folder)
    blocks = list(GATE.blocks(copied, {}))
    assert blocks[0].headline.startswith("Regressed: ")
    assert "9999999999.json" in of_type(blocks, Checks)[-1].items[0].text
    bad = judgment(swept={"attack": HOSTILE, "defense": HOSTILE}, why=HOSTILE)
    keep(verdict(bad, warnings=(HOSTILE,), run=HOSTILE, commit=HOSTILE, time=2.5e9), copied.folder)
    (view,) = [view for view in VIEWS if view.name == "gate"]
    test = visit(folder.parent, monkeypatch, view, run="hostile")
    assert HOSTILE in text_of(test)
    (more,) = of_type(GATE.blocks(copied, {}), More)
    assert more.title.startswith("All 1 judgments")
