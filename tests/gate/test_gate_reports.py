"""A verdict for people and for CI: nothing in it is taken for markup, and what is written is read back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fedguard.bench.gate.reports import junit
from fedguard.bench.gate.verdict import WORDS, GateVerdict, Judgment, SuiteJudgment
from fedguard.bench.gate.verdict_store import as_json, keep, verdicts
from fedguard.bench.pages.gate import describe_verdict
from fedguard.bench.pages.markdown import render_markdown
from fedguard.bench.pages.terminal import render_terminal
from fedguard.bench.records.store import RunFolder

NASTY = "<script>alert(1)</script> | `x` **bold** [a](http://b) \x00\x1b[31m \ud800 &amp; ]]>"


def judgment(word: str, **more) -> Judgment:
    known = {
        "swept": {"attack": "none", "defense": f"d_{word}"},
        "cell": word,
        "figure": "final_accuracy",
        "verdict": word,
        "why": f"because {word}.",
        "before": 0.8,
        "after": 0.74,
        "drop": 0.06,
        "margin": 0.02,
        "seeds": (0, 1, 2),
        "p_value": 0.0012,
        "detectable": 0.031,
    }
    return Judgment(**{**known, **more})


AUDIT = {"cells": ["x"], "subject": "the server's noise", "verdict": "violated", "words": "epsilon 3 is below 4.2"}
BROAD = SuiteJudgment(
    figure="final_accuracy", verdict="regressed", why="worse by 1.0 points.", drop=0.01, p_value=0.001, cells=6, seeds=3
)
VERDICT = GateVerdict(
    run="mine",
    baseline="b.json",
    time=1_700_000_000.0,
    commit="abc",
    baseline_commit=None,
    judgments=tuple(judgment(word) for word in WORDS),
    broad=(BROAD, SuiteJudgment(figure="attack_success", verdict="pass", why="fine.")),
    audits=(AUDIT, {**AUDIT, "verdict": "consistent"}),
    warnings=("torch was 1, is 2.",),
)


def nasty() -> GateVerdict:
    bad = judgment("regressed", swept={"attack": NASTY, "defense": NASTY, NASTY: NASTY}, why=NASTY)
    audit = {**AUDIT, "subject": NASTY, "words": NASTY}
    return replace(
        VERDICT,
        run=NASTY,
        baseline=NASTY,
        commit=NASTY,
        judgments=(bad,),
        audits=(audit,),
        warnings=(NASTY,),
        incompatible=(NASTY,),
    )


def plain(verdict: GateVerdict, width: int = 250) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(render_terminal(describe_verdict(verdict)), highlight=False)
    return capture.get()


def markdown(verdict: GateVerdict) -> str:
    """The summary of a job."""
    return render_markdown(describe_verdict(verdict))


def test_the_terminal_says_the_worst_first_and_shows_what_matters():
    text = plain(VERDICT)
    lines = text.splitlines()
    assert (
        lines[0]
        == "Regressed: final accuracy is worse by 6.0 points in no attack against d_regressed, confirmed on 0 fresh seeds, p = .001."
    )
    assert lines[1] == "80.0 % before, 74.0 % now; the margin is 2.0 points."
    assert lines[2] == "Over the whole suite, final accuracy: regressed: worse by 1.0 points."
    rows = [line for line in lines if " d_" in line and "2.0" in line]
    assert [row.split()[5] for row in rows] == ["regressed", "missing", "inconclusive", "improved", "pass", "identical"]
    for said in (
        "1 regressed, 1 missing, 1 inconclusive",
        "because regressed.",
        "torch: 1 -> 2",
        "epsilon 3 is below 4.2",
        "exit code 3",
    ):
        assert said in text, said
    assert "d_regressed" in plain(VERDICT, 60)


def test_markdown_has_a_table_of_what_matters_and_folds_all_judgments():
    head, folded = markdown(VERDICT).split("<details>")
    rows = [line for line in head.splitlines() if line.startswith("| no attack")]
    assert [re.sub(r"[^a-z]", "", row.split(" | ")[1]) for row in rows][:3] == ["regressed", "xmissing", "inconclusive"]
    assert "<summary>All 6 judgments, and how a cell is judged</summary>" in folded and "because pass." in folded
    for line in markdown(VERDICT).splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) in (7, 8, 12)


def test_markdown_takes_no_text_for_markup():
    text = markdown(nasty())
    code = re.sub(r"`{2,} .*? `{2,}", "", text)
    bare = re.sub(r"\\.", "", re.sub(r"`[^`\n]*`", "", code))
    assert "<script>" not in code and "**bold" not in bare and "[a]" not in bare
    assert not re.search(r"<(?!/?(details|summary)>)", code)


def test_junit_read_back():
    (suite,) = ElementTree.fromstring(junit(VERDICT))
    assert dict(suite.attrib) == {
        "name": "fedguard gate: mine", "timestamp": "2023-11-14T22:13:20", "tests": "10", "failures": "3", "errors": "1", "skipped": "1",
    }  # fmt: skip
    outcome = {}
    for case in suite.findall("testcase"):
        outcome.setdefault(case.get("classname"), []).append(case[0].tag)
    assert outcome["fedguard.gate.cell.final_accuracy"] == [
        "system-out",
        "system-out",
        "system-out",
        "skipped",
        "failure",
        "error",
    ]
    assert outcome["fedguard.gate.suite"] == ["failure", "system-out"]
    assert outcome["fedguard.gate.audit"] == ["failure", "system-out"]
    properties = {one.get("name"): one.get("value") for one in suite.find("properties")}
    assert (
        properties["exit_code"] == "3"
        and properties["warning_1"] == "torch was 1, is 2."
        and properties["commit"] == "abc"
    )
    (strict,) = ElementTree.fromstring(junit(replace(VERDICT, strict=True)))
    assert (strict.get("errors"), strict.get("skipped")) == ("2", "0")


def test_junit_takes_no_text_for_markup():
    (suite,) = ElementTree.fromstring(junit(nasty()).encode())
    case = next(one for one in suite.findall("testcase") if "cell" in one.get("classname"))
    assert "<script>alert(1)</script> | `x`" in case.find("failure").get("message")


def test_every_report_can_be_written_and_none_moves_a_terminal():
    for text in (plain(nasty()), markdown(nasty()), junit(nasty()), as_json(nasty())):
        assert text.encode() and "\x1b" not in text and "\x00" not in text


def test_what_cannot_be_judged_is_never_an_empty_report():
    nothing = replace(VERDICT, judgments=(), broad=(), audits=())
    (suite,) = ElementTree.fromstring(junit(nothing))
    assert suite.get("errors") == "1"
    assert "Cannot judge: no metric of any cell" in markdown(nothing) and "Cannot judge: " in plain(nothing)
    other = replace(nothing, incompatible=("other data.",))
    (suite,) = ElementTree.fromstring(junit(other))
    assert suite.find("testcase/error").get("message") == "other data."
    assert "other data." in markdown(other) and "other data." in plain(other)


def test_what_got_better_is_kept_by_an_update():
    better = replace(VERDICT, judgments=(judgment("improved"),), broad=(), audits=())
    for text in (plain(better), markdown(better)):
        assert "fedguard baseline update mine --baseline b.json" in text
    assert "baseline update" not in plain(replace(VERDICT, judgments=(judgment("pass"),), broad=(), audits=()))


def test_verdicts_are_kept_beside_the_run(tmp_path):
    folder = RunFolder(tmp_path)
    later = replace(VERDICT, time=1_700_000_100.0)
    for one in (later, VERDICT):
        keep(one, folder)
    (tmp_path / "gate" / "0.json").write_text("{")
    (tmp_path / "gate" / "1.json").write_text("[]")
    (tmp_path / "gate" / "2.json").write_text(json.dumps({**VERDICT.as_dict(), "schema": 3}))
    (tmp_path / "gate" / "3.json").write_text(json.dumps({**VERDICT.as_dict(), "judgments": [1]}))
    unheard_of = json.dumps(VERDICT.as_dict()).replace('"attack_success"', '"kappa"')
    (tmp_path / "gate" / "4.json").write_text(unheard_of)
    broken = []
    assert verdicts(folder, broken.append) == [VERDICT, later]
    assert sorted(one.path.name for one in broken) == ["0.json", "1.json", "2.json", "3.json", "4.json"]
    assert verdicts(RunFolder(tmp_path / "none")) == []
    assert json.loads(as_json(VERDICT))["exit_code"] == 3


def test_what_is_no_json_number_is_not_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(replace(VERDICT, judgments=(judgment("pass", drop=float("nan")),)))


LOST = judgment(
    "pass", why="not confirmed.", drop=0.0, worst_seed=1, worst_seed_drop=0.6,
    lost_seed="one seed lost 60.0 points (seed 1), not confirmed on fresh ones",
)  # fmt: skip


def test_a_ruined_seed_is_said_everywhere_though_the_verdict_is_a_pass():
    verdict = replace(VERDICT, judgments=(replace(LOST, why=f"not confirmed. {LOST.lost_seed}."),), broad=(), audits=())
    assert verdict.exit_code == 0 and "in 1 cell a seed is ruined" in verdict.headline
    head = markdown(verdict).split("<details>")[0]
    for said in (squeezed(plain(verdict)), head.replace("\\", ""), junit(verdict), as_json(verdict)):
        assert LOST.lost_seed in said
        assert "60.0 points" in said
    (suite,) = ElementTree.fromstring(junit(verdict))
    properties = {one.get("name"): one.get("value") for one in suite.find("properties")}
    assert LOST.lost_seed in properties["lost_seed_1"]


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_a_narrow_terminal_breaks_no_word():
    verdict = replace(VERDICT, judgments=(judgment("regressed", swept={
        "attack": "sign_flip", "defense": "nnm >> trimmed_mean", "protocol.secure_aggregation": "full",
    }), LOST))  # fmt: skip
    text = plain(verdict, 80)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("sign_flip", "against", "trimmed_mean,", "protocol.secure_aggregation", "regressed", "margin"):
        assert word in text.split(), word
