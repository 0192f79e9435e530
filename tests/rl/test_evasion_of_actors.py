"""Observations that are changed at test time: held against a policy whose weak spot is known by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fedguard.attacks.evasion.fgsm import FGSM
from fedguard.attacks.evasion.pgd import PGD
from fedguard.bench.running.trial import run_trial
from fedguard.contracts import EvasionAttack
from fedguard.errors import ContractError
from fedguard.metrics.evasion import play_under_evasion
from fedguard.rng import Rng
from fedguard.tasks.environments.cartpole import CartPole
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.models.softmax import Softmax
from fedguard.tasks.playing import EnvironmentTask
from tests.rl.acting import cell

#: Pushes to the side to which the pole falls: right where angle + .5 speed > 0. It holds the pole for 500 steps.
WEIGHTS = torch.tensor([0.0, 0.0, 1.0, 0.5])


def task(model=None) -> EnvironmentTask:
    return EnvironmentTask.build_task(CartPole(copies=2), model or Softmax(), 2, Rng(0))


def holding(one: EnvironmentTask) -> torch.Tensor:
    """A linear policy: two outputs -s and s, and the value 0."""
    flat = one.initial_model(Rng(0)).zero_()
    weights = torch.zeros(3, 4)
    weights[0], weights[1] = -WEIGHTS, WEIGHTS
    flat[: weights.numel()] = weights.flatten()
    return flat


def by_hand(one: EnvironmentTask, eps: float) -> float:
    """The mean return where each coordinate that counts is pushed by eps widths against the action that is right."""
    world, widths = one.environment, None
    for push in (0.0, eps):
        state = world.start_episodes(100, one.rng.child("test").numpy())
        returns, playing, met = np.zeros(100), np.ones(100, bool), []
        while playing.any():
            seen = world.observe_state(state).astype(np.float64)
            met.append(seen)
            score = seen @ WEIGHTS.double().numpy()
            if push:
                score = score - np.sign(score) * push * (widths @ np.abs(WEIGHTS.double().numpy()))
            step = world.take_step(state, (score > 0).astype(np.int64))
            returns += np.where(playing, step.rewards, 0.0)
            over = step.terminated | step.truncated
            playing &= ~over
            state = world.restart_episodes(step.state, over, np.random.default_rng(0)) if over.any() else step.state
        if not push:
            assert returns.mean() > 400
            stacked = np.concatenate(met)
            widths = stacked.max(0) - stacked.min(0)
    return float(returns.mean())


@pytest.mark.parametrize("attack", [FGSM(eps=0.02), PGD(eps=0.02, steps=3, starts=1), FGSM(eps=0.3)], ids=str)
def test_a_linear_policy_is_pushed_as_far_as_its_margin(attack):
    """Of a linear policy the best change is known: each coordinate that counts, by eps widths, against what it does."""
    one = task()
    found = np.mean(play_under_evasion(attack, one, holding(one), Rng(3)).returns)
    assert found == pytest.approx(by_hand(one, attack.eps), rel=0.05)
    assert found < 200 or attack.eps < 0.1  # with 400 and more without


def test_without_room_nothing_changes_and_a_memory_is_attacked_as_well():
    one = task(MLP(hidden=(8,)))
    model = one.initial_model(Rng(5))
    assert play_under_evasion(FGSM(eps=1e-9), one, model, Rng(3)).returns == one.evaluate(model).returns
    made = cell("r2d2", task={"data": "masked_cartpole(copies=3)", "model": "gru(memory=4)"},
                training={"algorithm": "recurrent_dqn(t_max=4)", "rounds": 2}, evaluation={"every": 2, "evasion": "fgsm(eps=.2)"})  # fmt: skip
    assert not made.verdict.reasons, made.verdict.reasons
    returns = run_trial(made, 0, {})[0]["result"]["returns"]
    assert 8 <= returns["evaded"] <= 500


def test_a_record_has_the_return_of_the_final_model_under_the_attack():
    plain = {"training": {"rounds": 2}, "evaluation": {"every": 2}}
    attacked = {**plain, "evaluation": {"every": 2, "evasion": "pgd(eps=.3, steps=2)"}}
    with_it, without = (run_trial(cell("a2c", **given), 0, {})[0]["result"] for given in (attacked, plain))
    assert "evaded" not in without["returns"] and "evasion" not in with_it
    assert with_it["returns"]["final"] == without["returns"]["final"]
    assert with_it["returns"]["evaded"] < with_it["returns"]["last"] + 5


@dataclass(frozen=True, kw_only=True)
class TooFar(EvasionAttack):
    name = "too_far"

    def perturb(self, logits, x, y, value_range, rng):
        return x + 1.1 * self.radius(value_range)


def test_an_attack_that_goes_too_far_breaks_its_contract():
    one = task()
    with pytest.raises(ContractError, match="too_far broke its contract: perturb: a change of 0.11, beyond 0.1"):
        play_under_evasion(TooFar(eps=0.1), one, holding(one), Rng(0))
