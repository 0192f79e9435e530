"""Trainings that are judged by simulated time: until when they last, and at which moments; beside every round of the same ones."""

from __future__ import annotations

import math

import pytest

from fedguard.bench.running import estimate
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.config import Cell
from fedguard.config.schema import CellConfig
from fedguard.errors import ConfigError
from fedguard.registry import load_registry

#: By architecture, how long a training is cut; devices are unequal, so that rounds are.
KINDS = ["server", "parameter_server", "fedbuff(buffer=3)", "fedasync", "google(over=1.5, window=20)", "all_reduce", "d_psgd", "dsgt",
         "ako(p=0.5, wait=false)"]  # fmt: skip
ROUNDS = 9


def cell(architecture: str, evaluation: dict, network=..., **more) -> Cell:
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
    return Cell.build(CellConfig.model_validate(config | more), load_registry())


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
        last = [every[number][1] for number in sorted(expected)][-5:]
        assert found["final_accuracy"] == pytest.approx(sum(last) / len(last))
        if "nodes" in found:
            assert len(found["nodes"]["curve"]["worst"]) == len(expected)


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
