"""A gate on what it takes to a target: later is worse, never is worse than late, and of what neither run reached nothing is known."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import binomtest

import fedguard as fg
from fedguard.bench.gate.baseline import read
from fedguard.bench.gate.reports import junit
from fedguard.bench.gate.stages import signs
from fedguard.bench.gate.verdict import GateVerdict
from fedguard.bench.gate.verdict_store import as_json
from fedguard.bench.gate.work import gate
from fedguard.bench.pages.gate import describe_verdict as blocks_of
from fedguard.bench.pages.markdown import render_markdown
from fedguard.bench.pages.terminal import render_terminal
from fedguard.config.document import Document
from fedguard.config.schema import GateSection, read_suite
from fedguard.errors import ConfigError
from fedguard.metrics.stats import CensoredValue
from tests.gate.tables import baseline, cell, judged, snapshot

FIGURE = "seconds_to(0.8)"
GATE = {"metrics": {FIGURE: {"margin": 5}}}
#: Simulated seconds on 3 seeds, and on 8 fresh ones.
USUAL = [40.0, 42.0, 41.0, *(40.0 + number / 4 for number in range(8))]
NEVER = [CensoredValue(60.0)] * 11


def shown(verdict: GateVerdict) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(render_terminal(blocks_of(verdict)))
    return console.file.getvalue()


def one(before, after, **more):
    verdict = judged({"x": before}, {"x": after}, FIGURE, GATE, **more)
    (found,) = verdict.judgments
    return verdict, found


def test_later_than_the_margin_is_a_regression_and_within_it_is_none():
    verdict, found = one(USUAL, [value + 6 for value in USUAL])
    assert (found.verdict, verdict.exit_code, found.drop) == ("regressed", 3, 6.0)
    assert "worse by 6 simulated seconds on 3 seeds, margin 5 simulated seconds" in found.why
    assert one(USUAL, [value + 4 for value in USUAL])[1].verdict == "pass"
    assert one(USUAL, USUAL)[1].verdict == "identical"


def test_reached_before_and_never_now_is_a_regression_however_early_the_run_ended():
    for end in (60.0, 10.0):
        verdict, found = one(USUAL, [CensoredValue(end)] * 11)
        assert (found.verdict, verdict.exit_code) == ("regressed", 3)
        assert found.why == (
            "the target was reached on 3 of 3 seeds, and is on 0 now, margin 5 simulated seconds; with fresh seeds the target was "
            "reached on 8 of 8 seeds, and is on 0 now: confirmed, p = 0.0039."
        )
        assert (found.before, found.after, found.drop, found.detectable) == (40.875, None, None, None)


@pytest.mark.parametrize(("lost", "word"), [(7, "regressed"), (6, "inconclusive"), (4, "pass"), (0, "pass")])
def test_of_fresh_seeds_so_many_have_to_be_lost_as_the_sign_test_asks_for(lost, word):
    """7 of 8 by chance with p = 9/256, 6 with 37/256; of 4 the median is as it was."""
    after = [*NEVER[:3], *NEVER[:lost], *USUAL[3 + lost :]]
    assert one(USUAL, after)[1].verdict == word


def test_one_seed_that_gets_there_no_more_is_told_though_the_others_do():
    _, found = one(USUAL, [CensoredValue(60.0), *USUAL[1:]])
    assert found.verdict == "pass"
    assert found.lost_seed == "one seed never gets to the target, or far later (seed 0), not confirmed on fresh ones"
    forbidden = judged({"x": USUAL}, {"x": [CensoredValue(60.0), *USUAL[1:]]}, FIGURE, {**GATE, "single_seed": "fail"})
    assert forbidden.judgments[0].verdict == "regressed"


def test_never_before_and_never_now_is_nothing_known():
    verdict, found = one(NEVER, NEVER)
    assert (found.verdict, verdict.exit_code) == ("inconclusive", 0)
    assert "reached on 0 of 3 seeds, and is on 0 now" in found.why and "nothing is known of any seed" in found.why
    assert one(NEVER, [CensoredValue(9.0)] * 11, strict=True)[0].exit_code == 4


def test_never_before_and_reached_now_is_better():
    assert one(NEVER, USUAL)[1].verdict == "improved"
    assert one([*NEVER[:2], *USUAL[2:]], USUAL)[1].verdict == "pass", "of one seed that is as it was"


def test_seeds_of_which_nothing_is_known_are_left_out():
    before, after = [*NEVER[:1], *USUAL[1:]], [*NEVER[:1], *(value + 6 for value in USUAL[1:])]
    _, found = one(before, after)
    assert found.verdict == "regressed"
    unknown = one([*USUAL[:3], *NEVER[3:]], NEVER)[1]
    assert unknown.verdict == "missing" and "no fresh seed reaches the target, before or now" in unknown.why


def test_a_ceiling_is_broken_by_what_never_gets_there():
    told = {"metrics": {FIGURE: {"margin": 5, "ceiling": 50}}}
    (found,) = judged({"x": USUAL}, {"x": [CensoredValue(9.0), *USUAL[1:]]}, FIGURE, told).judgments
    assert found.verdict == "regressed"
    assert found.why == "1 of 3 seeds never get there, where the ceiling is 50 simulated seconds."
    assert judged({"x": USUAL}, {"x": USUAL}, FIGURE, told).judgments[0].verdict == "identical"


def test_over_the_whole_suite_only_cells_count_that_got_there():
    both = {"x": USUAL, "y": USUAL}
    verdict = judged(both, {"x": [value + 2 for value in USUAL], "y": NEVER}, FIGURE, GATE)
    assert [(one.cells, one.drop) for one in verdict.broad] == [(1, 2.0)]


def test_a_verdict_with_what_never_came_is_written_and_read():
    verdict, found = one(USUAL, NEVER)
    assert GateVerdict.from_dict(json.loads(as_json(verdict))).judgments == (found,)
    for text in (render_markdown(blocks_of(verdict)), junit(verdict), shown(verdict)):
        assert "reached on 3 of 3 seeds, and is on 0 now" in " ".join(text.split())
        assert "inf" not in text.replace("information", "") and "nan" not in text


def test_a_baseline_keeps_which_seeds_never_got_there(tmp_path):
    made = baseline(snapshot({"x": cell({FIGURE: [40.0, CensoredValue(60.0), 41.0]})}, gate=GATE))
    made.write(tmp_path / "b.json")
    kept = read(tmp_path / "b.json").snapshot.cells["x"].of(FIGURE)
    assert [isinstance(value, CensoredValue) for value in kept.values()] == [False, True, False]
    assert list(kept.values()) == [40.0, 60.0, 41.0]


@given(st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 3.0, math.inf]), min_size=1, max_size=12))
def test_the_sign_test_is_the_binomial_one(drops):
    drop, p = signs(drops, 2.0)
    above = sum(one > 2.0 for one in drops)
    assert p == pytest.approx(binomtest(above, len(drops), 0.5, alternative="greater").pvalue)
    assert sum(one <= drop for one in drops) >= len(drops) / 2 <= sum(one >= drop for one in drops)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({FIGURE: {}}, "metrics.seconds_to(0.8): expected a margin in simulated seconds, as in {margin: 10}"),
        (
            {"seconds_to(2)": {"margin": 1}},
            "or what it takes to a target, such as seconds_to(0.9); got 'seconds_to(2)'.",
        ),
        ({"durability": {"margin": 1}}, "such as seconds_to(0.9); got 'durability'."),
        ({FIGURE: {"margin": -1}}, "margin: expected greater than or equal to 0; got -1."),
    ],
)
def test_what_a_gate_cannot_watch_is_said_in_one_line(metrics, message):
    with pytest.raises(ConfigError) as caught:
        read_suite(Document({"gate": {"metrics": metrics}}))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_target_that_is_not_watched_any_more_and_a_run_without_times_are_not_passed():
    verdict = judged({"x": USUAL}, {"x": USUAL}, FIGURE, {"metrics": {"final_accuracy": {}}}, gate_before=GATE)
    assert verdict.exit_code == 4
    assert any("seconds_to(0.8) is not watched any more" in why for why in verdict.incompatible)
    timeless = judged({"x": [0.8] * 11}, {"x": [0.8] * 11}, gate=GATE)
    assert timeless.incompatible == ("gate.metrics: no cell has the metric seconds_to(0.8).",)


RULE = '''
from dataclasses import dataclass
from fedguard.contracts import CoordinateRule, Sight

@dataclass(frozen=True, kw_only=True)
class Paced(CoordinateRule):
    """The mean, scaled."""
    name = "paced"
    source = "a test"
    needs = (Sight.EACH_UPDATE,)
    def reduce(self, block, context):
        return block.mean(0) * {factor}
'''
SUITE = {
    "name": "paced",
    "plugins": ["paced_rules"],
    "clients": {"total": 4},
    "training": {"rounds": 10},
    "architecture": "fedbuff(buffer=4)",
    "network": {"link": {"latency": 1}},
    "seeds": 2,
    "matrix": {"defense": ["paced"]},
    "gate": {"confirm": 5, "audit": False, "metrics": {"seconds_to(0.8)": {"margin": 2}}},
}


@pytest.mark.parametrize(
    ("factor", "why"),
    [
        (0.3, "worse by "),
        pytest.param(0.01, "the target was reached on 2 of 2 seeds, and is on 0 now", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_rule_made_slower_is_a_regression(tmp_path, monkeypatch, factor, why):
    """From trainings to the verdict: the final accuracy alone would say less, and later."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "paced_rules.py"
    file.write_text(RULE.replace("{factor}", "1.0"))
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(SUITE))
    run = fg.run("suite.yaml", store=tmp_path, jobs=1)
    fg.save_baseline(run, tmp_path / "b.json", jobs=1)
    assert gate(run, tmp_path / "b.json", jobs=1).headline == "passed: 1 identical"
    file.write_text(RULE.replace("{factor}", str(factor)))
    verdict = gate(fg.run("suite.yaml", store=tmp_path, jobs=1, fresh=True), tmp_path / "b.json", jobs=1)
    (found,) = verdict.judgments
    sys.modules.pop("paced_rules", None)
    assert (found.verdict, verdict.exit_code) == ("regressed", 3), found.why
    assert found.why.startswith(why)


def test_the_usual_suite_has_no_such_metric():
    assert not any("_to(" in name for name in GateSection().metrics)
