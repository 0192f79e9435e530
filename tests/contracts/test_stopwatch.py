"""The stopwatch of a round: what is charged to whom, and that a record's stages are the whole of its cost."""

from __future__ import annotations

import dataclasses
import doctest
import time
from dataclasses import dataclass

import pytest
from torch import Tensor

import fedguard.contracts.stopwatch
from fedguard.api import lay_out
from fedguard.architectures.server import Server
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.contracts import STAGES, CoordinateRule, Pipeline, PoisonAttack, PoisonView, RuleContext, Sight, Stopwatch
from fedguard.errors import ContractError
from tests.root import ROOT

SUITE = {
    "name": "timed",
    "task": {"data": "digits", "model": "softmax"},
    "clients": {"total": 6, "malicious": 2},
    "training": {"rounds": 3, "batch_size": None},
    "matrix": {"attack": ["none"], "defense": ["mean"]},
    "seeds": 1,
}


def one_cell(**changes):
    return lay_out({**SUITE, **changes})[1].cells[-1]


def test_the_stages_add_up_to_the_time_that_passed():
    before = time.perf_counter()
    stopwatch = Stopwatch()
    begun = time.perf_counter()
    with stopwatch.stage("training"), stopwatch.stage("measuring"):
        time.sleep(0.01)
    with stopwatch.stage("attack"):
        time.sleep(0.01)
    ended = time.perf_counter()
    total = sum(stage["seconds"] for stage in stopwatch.stage_totals().values())
    assert ended - begun <= total <= time.perf_counter() - before


def test_a_stage_within_a_stage_is_taken_from_the_outer_one():
    stopwatch, begun = Stopwatch(), time.perf_counter()
    with stopwatch.stage("attack"):
        time.sleep(0.02)
        with stopwatch.stage("training"):
            time.sleep(0.05)
        time.sleep(0.02)
    passed, spent = time.perf_counter() - begun, stopwatch.stage_totals()
    assert spent["training"]["seconds"] >= 0.05
    assert 0.04 <= spent["attack"]["seconds"] <= passed - 0.05
    assert spent["attack"]["calls"] == spent["training"]["calls"] == 1


def test_sleep_takes_wall_time_and_work_takes_cpu_time():
    stopwatch = Stopwatch()
    with stopwatch.stage("masking"):
        time.sleep(0.1)
    with stopwatch.stage("aggregation"):
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
    spent = stopwatch.stage_totals()
    assert spent["masking"]["seconds"] >= 0.1 > spent["masking"]["cpu_seconds"]
    assert spent["aggregation"]["cpu_seconds"] >= 0.05


def test_a_stage_ends_where_an_error_leaves_it():
    stopwatch = Stopwatch()
    with pytest.raises(ZeroDivisionError), stopwatch.stage("model"):
        1 / 0  # noqa: B018
    time.sleep(0.02)
    assert stopwatch.stage_totals()["other"]["seconds"] >= 0.02


def test_a_stage_that_is_not_in_the_table_is_refused():
    with pytest.raises(ContractError, match="stopwatch: expected one of the stages data, training, .*; got 'lunch'"):
        Stopwatch().stage("lunch").__enter__()


def test_the_stages_of_a_record_are_the_whole_of_its_cost():
    record, _ = run_trial(one_cell(), 0, {})
    cost = record["cost"]
    for figure in ("seconds", "cpu_seconds"):
        assert sum(stage[figure] for stage in cost["stages"].values()) == pytest.approx(cost[figure], rel=1e-12)
        assert all(stage[figure] >= 0 for stage in cost["stages"].values())
    assert set(cost["stages"]) <= set(STAGES)
    assert cost["stages"]["training"]["calls"] == cost["stages"]["model"]["calls"] == 3
    assert not {"attack", "client_defense", "masking", "inference", "references"} & set(cost["stages"])


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"matrix": {"attack": ["backdoor"], "defense": ["median"]}}, {"attack": 3, "references": 1}),
        ({"matrix": {"attack": ["none"], "defense": ["soteria >> mean"]}}, {"client_defense": 6}),
        ({"protocol": {"secure_aggregation": "full"}}, {"masking": 3}),
    ],
)
def test_a_record_names_the_stages_that_had_a_turn(changes, stages):
    record, _ = run_trial(one_cell(**changes), 0, {})
    for name, calls in stages.items():
        assert record["cost"]["stages"][name]["calls"] >= calls
    assert record["cost"]["stages"][next(iter(stages))]["seconds"] > 0


@dataclass(frozen=True, kw_only=True)
class Slow(CoordinateRule):
    """The mean, after a while."""

    name = "slow"
    needs = (Sight.NOTHING,)

    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        time.sleep(0.2)
        return block.mean(0)


@dataclass(frozen=True, kw_only=True)
class SlowAttack(PoisonAttack):
    """The honest mean, after a while."""

    name = "slow_attack"
    needs = (Sight.HONEST_UPDATES,)

    def craft(self, view: PoisonView) -> Tensor:
        time.sleep(0.3)
        return view.honest.mean(0).expand(view.f, -1)


def test_time_that_is_lost_on_purpose_is_found_where_it_was_lost():
    cell = one_cell()
    setup = dataclasses.replace(set_up(cell, 0, Workbench().task(cell, 0)), malicious=frozenset({1, 4})).with_parts(
        pipeline=Pipeline((Slow(),)), attack=SlowAttack(), attack_sees=Sight.HONEST_UPDATES.with_implied()
    )
    assert len(list(Server().run(setup))) == 3
    spent = setup.stopwatch.stage_totals()
    assert spent["aggregation"]["seconds"] >= 0.6
    assert spent["attack"]["seconds"] >= 0.9
    assert spent["attack"]["calls"] >= 3
    assert spent["aggregation"]["cpu_seconds"] < 0.6


def test_the_table_in_the_documents_is_the_table_in_the_code():
    page = (ROOT / "docs" / "scale.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.split("`")[1] in STAGES]
    assert rows == [f"| `{name}` | {meaning} |" for name, meaning in STAGES.items()]


def test_the_example_in_its_docstring_runs():
    assert doctest.testmod(fedguard.contracts.stopwatch).failed == 0
