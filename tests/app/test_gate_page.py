"""The gate's page: what a verdict says is what is shown, a planted drop stands out, and trends are the means that they say."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import t
from streamlit.testing.v1 import AppTest

import fedguard as fg
from fedguard.app.charts.gate import COLORS, SHAPES, drops, trend
from fedguard.app.trends import points
from fedguard.app.views.gate import _audit_row
from fedguard.bench.gate.verdict import WORDS, GateVerdict, Judgment, SuiteJudgment
from fedguard.bench.gate.verdict_store import verdicts
from fedguard.bench.gate.work import gate, make_baseline

SUITE = {
    "name": "watched",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 3},
    "seeds": 3,
    "gate": {"confirm": 3},
    "matrix": {"attack": ["none", "sign_flip"], "defense": ["mean", "median"]},
}
SCRIPT = """
    from pathlib import Path
    from fedguard.app.here import PageContext
    from fedguard.app.views import gate

    gate.show(PageContext(Path({store!r}), {name!r}, {{}}))
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run that passed against its own baseline, and then fell below one that was 15 points better in one cell."""
    store = tmp_path_factory.mktemp("gated")
    run = fg.run(SUITE, store=store, jobs=1)
    baseline, better = store / "baseline.json", store / "better.json"
    make_baseline(run, "the first one", jobs=1).write(baseline)
    gate(run, baseline, jobs=1)
    content = json.loads(baseline.read_text())
    raised = run.manifest["positions"][0]["cell"]
    values = content["snapshot"]["cells"][raised]["values"]["final_accuracy"]
    content["snapshot"]["cells"][raised]["values"]["final_accuracy"] = {
        seed: value + 0.15 for seed, value in values.items()
    }
    better.write_text(json.dumps(content))
    gate(run, better, jobs=1)
    return run, baseline


def page(store, name, tmp_path, **query: str) -> AppTest:
    script = tmp_path / "page.py"
    script.write_text(textwrap.dedent(SCRIPT.format(store=str(store), name=name)))
    test = AppTest.from_file(str(script), default_timeout=60)
    for key, value in query.items():
        test.query_params[key] = value
    test.run()
    assert not test.exception
    return test


def verdict(**more) -> GateVerdict:
    judgment = Judgment(
        swept={"attack": "alie", "defense": "krum"},
        cell="0" * 12,
        figure="final_accuracy",
        verdict="regressed",
        why="worse by 6.1 points.",
        before=0.9,
        after=0.839,
        drop=0.061,
        margin=0.02,
        seeds=(0, 1, 2),
        p_value=0.004,
        detectable=0.03,
    )
    known = {"run": "r", "baseline": "b.json", "time": 1.8e9, "commit": "abc", "baseline_commit": "def"}
    return GateVerdict(**{**known, "judgments": (judgment,), **more})


def test_a_planted_drop_stands_on_top_with_its_figures(judged, tmp_path):
    run, _ = judged
    test = page(run.folder.path.parent, run.name, tmp_path)
    assert [error.value for error in test.error] == ["**Regressed**"]
    assert "Regressed (1)" in [heading.value for heading in test.subheader]
    assert "figure" in test.dataframe[0].value and "cells" in test.dataframe[0].value  # what all cells share, first
    (row,) = test.dataframe[1].value.to_dict("records")
    said = verdicts(run.folder)[-1]
    (found,) = [one for one in said.judgments if one.verdict == "regressed"]
    assert row["cell"] == "no attack against mean"
    assert row["worse by"] == "15.0 points"
    assert row["before"] == f"{100 * found.before:.1f} %"
    assert row["margin"] == "2.0 points"
    assert float(row["p"]) < 0.05
    assert any("fresh seeds" in code.value for code in test.code)


def test_an_earlier_verdict_can_be_read(judged, tmp_path):
    run, _ = judged
    test = page(run.folder.path.parent, run.name, tmp_path)
    earlier = test.selectbox[0].options[-1]
    test.selectbox[0].select(earlier).run()
    assert not test.exception
    assert [box.value for box in test.success] == ["**Passed**"]


def test_a_run_without_verdict_names_the_commands(judged, tmp_path):
    run, _ = judged
    shutil.copytree(run.folder.path, tmp_path / "unjudged", ignore=shutil.ignore_patterns("gate"))
    test = page(tmp_path, "unjudged", tmp_path)
    assert [code.value for code in test.code][:2] == [
        f"fedguard baseline save unjudged --to baseline.json --store {tmp_path}",
        f"fedguard gate unjudged --baseline baseline.json --store {tmp_path}",
    ]


def test_an_empty_store_names_the_command(tmp_path):
    assert [code.value for code in page(tmp_path / "none", None, tmp_path).code] == ["fedguard run examples/quick.yaml"]


def test_a_broken_verdict_is_left_out_and_named(judged, tmp_path):
    run, _ = judged
    broken = run.folder.path / "gate" / "9999999999.json"
    broken.write_text("{")
    try:
        test = page(run.folder.path.parent, run.name, tmp_path)
        assert any(code.value.startswith(f"{broken}: ") for code in test.code)
        assert [error.value for error in test.error] == ["**Regressed**"]
    finally:
        broken.unlink()


def test_texts_of_a_verdict_are_shown_as_text(tmp_path, judged):
    run, _ = judged
    hostile = "<script>alert(1)</script> **bold** :red[x]"
    said = verdict(warnings=(hostile,), incompatible=(hostile,), run=hostile, commit=hostile, time=2e9)
    path = run.folder.path / "gate" / "2000000000.json"
    path.write_text(json.dumps(said.as_dict()))
    try:
        test = page(run.folder.path.parent, run.name, tmp_path)
    finally:
        path.unlink()
    assert [code.value for code in test.code].count(hostile) == 2
    formatted = [*test.markdown, *test.error, *test.warning, *test.success, *test.info, *test.caption, *test.subheader]
    assert not [one.value for one in formatted if "script" in one.value or ":red" in one.value]


def test_a_baseline_s_history_is_read_on_request_and_another_file_is_one_line(judged, tmp_path):
    run, baseline = judged
    test = page(run.folder.path.parent, run.name, tmp_path)
    test.text_input[0].set_value(str(baseline)).run()
    assert not test.exception
    assert any(text.value.endswith("the first one") for text in test.text)
    test.text_input[0].set_value(str(run.folder.path / "manifest.json")).run()
    assert not test.exception
    assert any("expected a baseline; this is another file" in code.value for code in test.code)


def test_trends_are_the_mean_over_cells_and_the_worst_cell_with_student_s_interval(judged):
    run, _ = judged
    found = {one["what"]: one for one in points([(run, verdicts(run.folder))], "final_accuracy")}
    table = np.array(
        [
            [100 * run.records[position["cell"], seed]["result"]["final_accuracy"] for seed in (0, 1, 2)]
            for position in run.manifest["positions"]
        ]
    )
    means = table.mean(axis=0)
    share = means.mean() / 100
    half = t.ppf(0.975, 2) * means.std(ddof=1) / np.sqrt(3) / 100 / (share * (1 - share))  # on the logit scale
    mean = found["mean over cells"]
    assert mean["mean"] == pytest.approx(means.mean())
    assert (mean["low"], mean["high"]) == pytest.approx(
        tuple(100 * expit(logit(share) + sign * half) for sign in (-1, 1))
    )
    assert found["worst cell"]["mean"] == pytest.approx(table.mean(axis=1).min())
    assert mean["cells"] == 4
    assert mean["verdict"] == "regressed"
    assert points([(run, [])], "final_accuracy")[0]["verdict"] == "not judged"
    # of what is lost to an attack, more is worse, and cells without attack have none of it
    lost = {one["what"]: one for one in points([(run, [])], "accuracy_drop")}
    assert lost["worst cell"]["mean"] >= lost["mean over cells"]["mean"]
    assert lost["mean over cells"]["cells"] == 2


def test_drops_are_drawn_in_points_beside_their_margins():
    chart = drops(verdict())["final_accuracy"].to_dict()
    (rows,) = chart["datasets"].values()
    assert rows[0]["drop"] == pytest.approx(6.1)
    assert rows[0]["margin"] == pytest.approx(2.0)
    assert rows[0]["cell"] == "alie against krum"


def test_no_word_is_told_by_its_color_alone():
    pairs = {(COLORS[word], SHAPES[word]) for word in WORDS}
    assert len(pairs) == len({COLORS[word] for word in WORDS}) == len(WORDS)
    bad, good = {"regressed", "inconclusive", "missing"}, {"improved", "identical", "pass"}
    assert not {SHAPES[word] for word in bad} & {SHAPES[word] for word in good}


def test_a_figure_without_drops_has_no_chart():
    missing = Judgment(swept={"attack": "none", "defense": "mean"}, cell="1", figure="psnr", verdict="missing", why="x")
    assert drops(verdict(judgments=(missing,))) == {}


def test_what_is_drawn_over_time_holds_every_point():
    given = [
        {"time": 1.8e9 + day, "run": f"r{day}", "commit": "c", "what": "worst cell", "mean": 50.0 + day, "low": 49.0,
         "high": 52.0, "cells": 4, "verdict": "passed"}
        for day in range(3)
    ]  # fmt: skip
    (rows,) = trend(given, "final_accuracy").to_dict()["datasets"].values()
    assert [row["mean"] for row in rows] == [50.0, 51.0, 52.0]


def test_broad_drops_are_told_in_words(tmp_path, judged):
    run, _ = judged
    broad = SuiteJudgment(
        figure="final_accuracy", verdict="regressed", why="small drops.", drop=0.012, p_value=0.003, cells=9, seeds=3
    )
    path = run.folder.path / "gate" / "2000000001.json"
    path.write_text(json.dumps(verdict(broad=(broad,), time=2e9).as_dict()))
    try:
        test = page(run.folder.path.parent, run.name, tmp_path)
    finally:
        path.unlink()
    row = test.dataframe[0].value.to_dict("records")[0]
    assert (row["mean drop"], row["p"], row["cells"]) == ("1.2 points", "0.003", "9")


def test_rows_of_drops_are_as_high_as_their_text_and_none_is_left_out():
    chart = drops(verdict())["final_accuracy"].to_dict()
    assert chart["height"] == {"step": 24} and chart["autosize"] == "fit-x"
    axes = [layer["encoding"]["y"]["axis"] for layer in chart["layer"]]
    assert all(axis["labelOverlap"] is False for axis in axes)


def test_a_line_joins_runs_of_the_same_cells_alone(judged, tmp_path):
    run, _ = judged
    folder = Path(shutil.copytree(run.folder.path, tmp_path / "other"))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["positions"] = manifest["positions"][:2]  # as if f or anything else were another one
    (folder / "manifest.json").write_text(json.dumps(manifest))
    same = Path(shutil.copytree(run.folder.path, tmp_path / "same"))
    found = points([(one, []) for one in (run, fg.open_run(folder), fg.open_run(same))], "final_accuracy")
    assert {one["run"]: one["cells as in"] for one in found} == {run.name: run.name, "other": "other", "same": run.name}
    details = [
        layer["encoding"].get("detail", {}).get("field") for layer in trend(found, "final_accuracy").to_dict()["layer"]
    ]
    assert "cells as in" in details


def test_audits_are_rows_of_words_and_rounded_figures():
    row = _audit_row({"cells": [""], "subject": "noise", "verdict": "consistent", "words": "fine", "claimed": 31.147792214831075,
                      "bound": {"epsilon": 1.23456}, "checks": [{"name": "x"}]})  # fmt: skip
    assert row == {"verdict": "consistent", "of": "noise", "claimed epsilon": "31.15", "lower bound": "1.235", "in words": "fine",
                   "cells": "every cell"}  # fmt: skip
