"""A verdict as SARIF: what stands in it, by hand-made judgments, and that only the repository is pointed to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedguard.bench.gate.sarif import RULES, gate_sarif
from fedguard.bench.gate.verdict import GateVerdict, Judgment, SuiteJudgment


def judged(verdict: str, cell: str = "abc123", figure: str = "final_accuracy", **facts) -> Judgment:
    swept = {"attack": "alie", "defense": "median"}
    return Judgment(swept=swept, cell=cell, figure=figure, verdict=verdict, why=f"it is {verdict}", **facts)


def document(tmp_path: Path, *judgments: Judgment, **more) -> dict:
    baseline = tmp_path / "ci" / "baseline.json"
    baseline.parent.mkdir(exist_ok=True)
    baseline.write_text('{\n "cells": [\n  {"cell": "other"},\n  {"cell": "abc123"}\n ]\n}\n')
    verdict = GateVerdict(
        run="r", baseline="b", time=0.0, commit=None, baseline_commit=None, judgments=judgments, **more
    )
    return json.loads(gate_sarif(verdict, baseline, tmp_path))


def test_a_regression_is_an_error_at_the_line_of_its_cell_in_the_baseline(tmp_path):
    made = document(tmp_path, judged("regressed", before=0.9, after=0.5, drop=0.4, margin=0.02), judged("pass"))
    assert made["version"] == "2.1.0" and made["$schema"].endswith("sarif-2.1.0.json")
    (run,) = made["runs"]
    assert run["automationDetails"] == {"id": "fedguard/gate/"}
    assert [one["id"] for one in run["tool"]["driver"]["rules"]] == list(RULES)
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("gate/worse", "error")
    assert result["message"]["text"] == "alie against median, final accuracy: it is regressed"
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "ci/baseline.json"}, "region": {"startLine": 4}}
    assert result["properties"] == {"cell": "abc123", "before": 0.9, "after": 0.5, "drop": 0.4, "margin": 0.02}


@pytest.mark.parametrize("verdict", ["missing", "inconclusive"])
def test_what_is_not_judged_is_a_note(tmp_path, verdict):
    (result,) = document(tmp_path, judged(verdict, cell="new"))["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("gate/not-judged", "note")
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}


def test_suites_audits_and_other_data_are_findings_too(tmp_path):
    whole = SuiteJudgment(figure="final_accuracy", verdict="regressed", why="many small drops", drop=0.01)
    audits = [{"verdict": "violated", "subject": "a", "words": "shown to leak"}, {"verdict": "consistent", "subject": "b", "words": ""}]  # fmt: skip
    made = document(tmp_path, broad=(whole,), audits=tuple(audits), incompatible=("other data",))
    found = [(one["ruleId"], one["message"]["text"]) for one in made["runs"][0]["results"]]
    assert found == [
        ("gate/worse", "final accuracy over the whole suite: many small drops"),
        ("gate/epsilon-exceeded", "shown to leak"),
        ("gate/not-judged", "other data"),
    ]


def test_a_finding_keeps_its_identity_when_its_numbers_change(tmp_path):
    def prints(*judgments):
        results = document(tmp_path, *judgments)["runs"][0]["results"]
        return [one["partialFingerprints"]["fedguard/v1"] for one in results]

    assert prints(judged("regressed", after=0.5)) == prints(judged("regressed", cell="new", after=0.4))
    assert len(set(prints(judged("regressed"), judged("regressed", figure="worst_class_accuracy")))) == 2


def test_a_run_that_passed_has_no_findings(tmp_path):
    assert document(tmp_path, judged("pass"), judged("improved"))["runs"][0]["results"] == []
