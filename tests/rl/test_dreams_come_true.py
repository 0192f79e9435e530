"""Dreamer solves Pendulum, and what it imagines is what then happens; where actors lie, it is not."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedguard.algorithms.rl.imagination import imagine_rollout
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import plan, read_document, read_suite
from fedguard.contracts import WorldModel
from fedguard.rng import Rng
from fedguard.tasks.environments.pendulum import Pendulum
from fedguard.tasks.models.rssm import RSSM
from fedguard.tasks.playing import EnvironmentTask
from tests.root import ROOT

STEPS, EPISODES = 12, 50


def promised(task: EnvironmentTask, model: Tensor, scale: float = 0.125) -> tuple[Tensor, Tensor]:
    """What likeliest actions are imagined to return in the next `STEPS` steps of episodes, and what they return; ``[N]``."""
    world, net = task.environment, task.module
    assert isinstance(net, WorldModel)
    memory, state, size = (
        torch.zeros(EPISODES, task.memory),
        world.start_episodes(EPISODES, Rng(7).numpy()),
        net.fixed + net.chance,
    )
    states, rewards = [], []
    with torch.no_grad():
        for _ in range(16 * STEPS):
            outputs, _, memory = task.outputs_from_memory(model, torch.from_numpy(world.observe_state(state)), memory)
            states.append(memory[:, :size])
            actions = task.policy.best(outputs)
            memory = task.remember_actions(memory, actions)
            step = world.take_step(state, actions.numpy())
            rewards.append(torch.from_numpy(step.rewards))
            state = step.state
        starts = torch.cat(states[::STEPS])
        nothing = torch.zeros(STEPS, len(starts), net.chance), torch.zeros(STEPS, len(starts), task.policy.numbers)
        dream = task.within(model, imagine_rollout, task.policy, starts, *nothing)
    real = torch.stack(rewards).unflatten(0, (16, STEPS)).sum(1).flatten()
    return dream.rewards.sum(0).double() / scale, real


def trained(seed: int, number: int = 0) -> tuple[EnvironmentTask, Tensor]:
    """The task and the last model of a cell of the example, which is evaluated at its end alone."""
    document = read_document(ROOT / "examples" / "dreamer.yaml")
    document.data["evaluation"]["every"] = document.data["training"]["rounds"]
    made = plan(document, read_suite(document)).cells[number]
    setup = set_up(made, seed, Workbench().task(made, seed))
    *_, last = made.architecture.run(setup)
    assert isinstance(setup.task, EnvironmentTask)
    return setup.task, last.model


def test_what_is_promised_is_compared_step_by_step() -> None:
    """An untrained network promises rewards of 0, the mean of which is wrong by all that there is."""
    task = EnvironmentTask.build_task(Pendulum(copies=1), RSSM(), 1, Rng(0))
    imagination, real = promised(task, task.initial_model(Rng(1)))
    assert imagination.shape == real.shape == (16 * EPISODES,)
    assert (imagination == 0).all() and -200 < float(real.mean()) < -40


@pytest.mark.slow
def test_a_pendulum_is_swung_up_and_dreams_come_true() -> None:
    """Returns of -200 and better (gymnasium's own say -150 is perfect from most starts), where chance has -1,240; and the sum
    of the next 12 rewards as the model imagines it.

    In the short form (ANCHOR_SEEDS=1) of one seed, in which a training takes about a minute.
    """
    returns, errors, sizes = [], [], []
    for seed in range(1 if os.environ.get("ANCHOR_SEEDS") == "1" else 5):
        task, model = trained(seed)
        returns.append(float(np.mean(task.evaluate(model).returns)))
        imagination, real = promised(task, model)
        errors.append(float((imagination - real).abs().mean()))
        sizes.append(float(real.std()))
        assert np.corrcoef(imagination, real)[0, 1] > 0.97
    assert max(errors) < 0.2 * min(sizes), (errors, sizes)
    assert np.mean(np.array(returns) > -300) >= 0.8, returns
    if len(returns) > 1:
        half = stats.t.ppf(0.975, 4) * np.std(returns, ddof=1) / np.sqrt(5)
        assert np.mean(returns) - half > 0.5 * task.guess, returns
