"""Trainings that are judged by simulated time: until when they last, and at which moments; beside every round of the same ones."""

from __future__ import annotations

import math

import pytest
import torch

from fedguard.bench.running import estimate
from fedguard.bench.running.in_time import as_of
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.config.sections import EvaluationSection
from fedguard.contracts import RoundReport, RoundTiming
from fedguard.errors import ConfigError
from fedguard.metrics.flags import FLAGS
from fedguard.registry import load_registry

#: By architecture, how long a training is cut; devices are unequal, so that rounds are.
KINDS = ["server", "parameter_server", "fedbuff(buffer=3)", "fedasync", "google(over=1.5, window=20)", "all_reduce", "d_psgd", "dsgt",
         "ako(p=0.5, wait=false)"]  # fmt: skip
ROUNDS = 9


def cell(architecture: str, evaluation: dict, network=..., **more) -> PlannedCell:
    timed = {
        "compute": {"seconds": 0.013, "jitter": 0.7, "slow": {"devices": [1], "factor": 3}},
        "link": {"latency": 0.21},
    }
    config = {
        "task": {"data": "digits", "model": "softmax", "partition": {"kind": "dirichlet", "alpha": 0.7}},
        "clients": {"total": 5, "malicious": 1},
        "training": {"rounds": ROUNDS, "batch_size": 16, "lr": 0.05},
        "architecture": architecture,
        "attack": "sign_flip",
        "network": timed if network is ... else network,
        "evaluation": evaluation,
    }
    return build_cell(CellConfig.model_validate(config | more), load_registry())


def trained(architecture: str, evaluation: dict, seed: int = 3, **more):
    one = cell(architecture, evaluation, **more)
    assert not one.verdict.reasons
    record, model = run_trial(one, seed, {})
    return record["result"], model


@pytest.fixture(scope="module", params=KINDS)
def whole(request):
    return request.param, *trained(request.param, {"every": 1})


def rows(curve) -> dict[int, tuple[float, float]]:
    return {
        number: (second, accuracy)
        for number, second, accuracy in zip(curve["round"], curve["seconds"], curve["accuracy"], strict=True)
    }


def stands_at(every: dict[int, tuple[float, float]], moment: float) -> int:
    """Plainly: the last round that has ended."""
    return max((number for number, (end, _) in every.items() if end <= moment), default=0)


def test_each_moment_of_the_grid_is_judged_by_the_model_that_stands_then(whole):
    architecture, result, model = whole
    every = rows(result["curve"])
    end = every[ROUNDS][0]
    for step in (end / 3.7, end / 40, 2 * end):
        found, same = trained(architecture, {"seconds": step})
        expected = {stands_at(every, k * step) for k in range(1, math.ceil(end / step))} - {0} | {ROUNDS}
        assert rows(found["curve"]) == {number: every[number] for number in sorted(expected)}
        assert bool((same == model).all()) and found["rounds"]["total"] == ROUNDS
        last = judge_plainly(every, step, end)[-5:]
        assert found["final_accuracy"] == pytest.approx(sum(last) / len(last))
        if "nodes" in found:
            assert len(found["nodes"]["curve"]["worst"]) == len(expected)


def judge_plainly(every: dict[int, tuple[float, float]], step: float, until: float) -> list[float]:
    """The accuracy at each moment of the grid, and at the end if that is none of them; a loop over moments."""
    found, k = [], 1
    while k * step < until:
        if number := stands_at(every, k * step):
            found.append(every[number][1])
        k += 1
    return [*found, every[stands_at(every, until)][1]]


@pytest.mark.parametrize(("step", "horizon"), [(0.02, 0.6), (0.09, 3.0), (0.21, 1.0)])
def test_the_final_accuracy_is_of_the_last_five_moments_and_not_of_five_rounds(whole, step, horizon):
    """Also where the rounds are over before the horizon: their last model stands until then."""
    architecture, result, _ = whole
    every = rows(result["curve"])
    end = every[ROUNDS][0]
    found, _ = trained(architecture, {"seconds": step * end, "until": horizon * end})
    last = judge_plainly(every, step * end, horizon * end)[-5:]
    assert found["final_accuracy"] == pytest.approx(sum(last) / len(last), abs=1e-12)
    if "nodes" in found:
        assert sum(found["nodes"]["accuracy"]) / len(found["nodes"]["accuracy"]) == pytest.approx(
            found["final_accuracy"]
        )


def test_a_curve_tells_at_how_many_moments_each_of_its_models_stood(whole):
    architecture, result, _ = whole
    assert "moments" not in result["curve"]
    every = rows(result["curve"])
    step = every[ROUNDS][0] / 23.5
    curve = trained(architecture, {"seconds": step})[0]["curve"]
    at = [stands_at(every, k * step) for k in range(1, 24)] + [ROUNDS]
    assert curve.get("moments", [1] * len(curve["round"])) == [at.count(number) for number in curve["round"]]


@pytest.mark.parametrize(("step", "until"), [(0.1, 0.7), (0.07, 7.0), (0.3, 0.9), (10, 120), (0.7, 4.9)])
def test_a_horizon_on_the_grid_is_one_moment(step, until):
    wanted = EvaluationSection(seconds=step, until=until)
    report = RoundReport(
        round=1,
        model=torch.empty(0),
        clients=(),
        moment=RoundTiming(seconds=step / 2, computed=0.0, joules=0.0, bytes_up=0, bytes_down=0),
    )
    (judged,) = as_of([report], wanted)
    assert judged.moments == round(until / step)


def test_a_slow_training_is_not_past_its_best_for_its_first_models():
    """Five rounds until the horizon, of which the last two stand at the last five moments."""
    judge = {flag.name: flag.judge for flag in FLAGS}
    accuracy = [0.286, 0.5, 0.586, 0.692, 0.694]
    result = {"best_accuracy": 0.694, "final_accuracy": 0.6924}
    once, standing = {"accuracy": accuracy}, {"accuracy": accuracy, "moments": [1, 3, 2, 4, 1]}
    assert judge["not_converged"](result | {"curve": standing}, {}) is None
    assert judge["past_its_best"](result | {"curve": standing}, {}) is None
    slower = {"accuracy": [0.103, 0.214, 0.297, 0.347, 0.467], "moments": [1, 3, 2, 4, 1]}  # its best is its end
    assert judge["past_its_best"]({"best_accuracy": 0.467, "final_accuracy": 0.371, "curve": slower}, {}) is None
    fallen = {"accuracy": [0.3, 0.5, 0.7, 0.61, 0.6], "moments": [1, 3, 2, 4, 1]}
    assert judge["past_its_best"]({"best_accuracy": 0.7, "final_accuracy": 0.608, "curve": fallen}, {}) is not None
    assert "not come to its end" in judge["not_converged"](result | {"curve": once}, {})


def test_a_training_ends_with_the_last_round_that_ended_in_time(whole):
    architecture, result, model = whole
    every = rows(result["curve"])
    for last in (1, 4, ROUNDS):
        horizon = (
            every[last][0] if last != 4 else (2 * every[4][0] + every[5][0]) / 3
        )  # at the end of a round it is over
        last = stands_at(every, horizon)
        found, cut = trained(architecture, {"until": horizon, "every": 2})
        assert found["rounds"]["total"] == last
        assert rows(found["curve"]) == {
            number: every[number] for number in every if number <= last and (number % 2 == 0 or number == last)
        }
        assert found["time"]["seconds"] == pytest.approx(every[last][0]) and found["time"]["seconds"] <= horizon
        assert bool((cut == model).all()) == (last == ROUNDS)


def test_grid_and_horizon_go_together():
    every = rows(trained("fedbuff(buffer=3)", {"every": 1})[0]["curve"])
    step = every[ROUNDS][0] / 5.3
    found, _ = trained("fedbuff(buffer=3)", {"seconds": step, "until": 3.5 * step})
    expected = {stands_at(every, k * step) for k in (1, 2, 3)} - {0} | {stands_at(every, 3.5 * step)}
    assert set(found["curve"]["round"]) == expected


def test_a_horizon_before_the_first_round_ends_is_said():
    with pytest.raises(
        ConfigError, match=r"until: expected a moment after the first round, which ends after .* got 0.001"
    ):
        trained("server", {"until": 0.001})


def test_without_simulated_time_it_is_refused():
    for evaluation in ({"seconds": 3}, {"until": 30}):
        (reason,) = cell("server", evaluation, network=None).verdict.reasons
        assert "there is no simulated time. Set network" in reason
    (reason,) = cell("server", {"until": 30}, attack="dlg", clients={"total": 5}).verdict.reasons
    assert "dlg watches one round, and nobody knows whether it ends by evaluation.until" in reason
    assert not cell("server", {"seconds": 30}, attack="dlg", clients={"total": 5}).verdict.reasons


def test_what_is_no_time_is_refused_and_cells_without_it_are_what_they_were():
    for evaluation in (
        {"seconds": 0},
        {"seconds": -1},
        {"until": math.inf},
        {"until": math.nan},
        {"seconds": 2, "every": 3},
    ):
        with pytest.raises(ValueError):
            cell("server", evaluation)
    assert cell("server", {"every": 2}).canonical["evaluation"] == {"every": 2}
    assert len({cell("server", one).id for one in ({}, {"seconds": 2}, {"until": 2}, {"seconds": 2, "until": 2})}) == 4


def test_its_time_on_the_clock_is_that_of_its_rounds(monkeypatch):
    """A horizon within the first two rounds, and reports that are held back until the next one is there."""
    found = estimate._run(cell("server", {"seconds": 1e-3, "until": 1e-3}), 0, Workbench(), warm=False)
    assert found.round > 1e-3
