"""Plans in a model of the world: against the paper's loop in float64, in worlds whose best plan is known, and in evaluations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedguard.algorithms.rl.dreaming import Dreaming
from fedguard.algorithms.rl.planning import plan_first_actions, predict_returns
from fedguard.contracts import WorldModel
from fedguard.errors import ConfigError
from fedguard.tasks.playing import EPISODES
from fedguard.tasks.policies import GaussianPolicy
from tests.rl.acting import reports
from tests.rl.test_dreamer import CHANCE, STATE, TASK, Loop, heard, loud, normal, task_of, training

SMALL = {"horizon": 3, "candidates": 7, "best": 3, "iterations": 2}


class Draws:
    """Normal numbers, float64, each of which is kept."""

    def __init__(self, seed: int = 0) -> None:
        self.rng, self.given = np.random.default_rng(seed), list[Tensor]()

    def __call__(self, *shape: int) -> Tensor:
        self.given.append(torch.from_numpy(self.rng.standard_normal(shape)))
        return self.given[-1]


def loop_of_plan(loop: Loop, state: Tensor, given: list[Tensor], n: int) -> float:
    """Algorithm 2 of the paper for the n-th state, whose torques are within [-2, 2]."""
    means, spreads = [0.0] * 3, [2.0] * 3
    for of_actions, of_states in zip(given[::2], given[1::2], strict=True):
        worth, plans = [], []
        for j in range(7):
            plan = [min(max(means[t] + spreads[t] * float(of_actions[t, n, j, 0]), -2.0), 2.0) for t in range(3)]
            at, total, lasts = state, 0.0, 1.0
            for t in range(3):
                h = loop.h(at, heard(torch.tensor(plan[t])))
                mean, spread = loop.prior(h)
                at = torch.cat([h, mean + spread * of_states[t, n, j]])
                total += lasts * float(loop.told("reward", at)[0])
                lasts *= 1 / (1 + float(torch.exp(-loop.told("end", at)[0])))
            plans.append(plan)
            worth.append(total)
        best = sorted(range(7), key=lambda j: -worth[j])[:3]
        means = [sum(plans[j][t] for j in best) / 3 for t in range(3)]
        spreads = [sum(abs(plans[j][t] - means[t]) for j in best) / 2 for t in range(3)]
    return means[0]


def test_a_plan_is_that_of_the_papers_loop() -> None:
    task, draws, states = task_of(), Draws(), normal(4, STATE)
    model = loud(task)
    found = task.within(model, lambda net: plan_first_actions(net, task.policy, states, draws, **SMALL))
    assert len(draws.given) == 4 and draws.given[1].shape == (3, 4, 7, CHANCE)
    loop = Loop(task, model)
    wanted = [loop_of_plan(loop, states[n], draws.given, n) for n in range(4)]
    assert found[:, 0].tolist() == pytest.approx(wanted, rel=1e-9) and len(set(wanted)) == 4


class Known(WorldModel):
    """A world that is known: the state moves by the action, and its distance from where it should be is the cost."""

    fixed, chance = 1, 1

    def __init__(self, goal: float) -> None:
        nn.Module.__init__(self)
        self.goal = goal

    def advance_state(self, state: Tensor, heard: Tensor) -> Tensor:
        return state[..., :1] + heard[..., :1]

    def prior(self, h: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(h), torch.ones_like(h)

    def predict_reward(self, state: Tensor) -> Tensor:
        return -(state[..., 0] - self.goal).square()

    def lasts(self, state: Tensor) -> Tensor:
        return torch.full_like(state[..., 0], 1.0)

    def posterior(self, h: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    reads = pictured = lambda self, x: x


@pytest.mark.parametrize(("goal", "first"), [(0.3, 0.6), (-0.8, -1.6), (5.0, 2.0)])
def test_a_plan_goes_where_it_pays_and_no_further_than_it_may(goal: float, first: float) -> None:
    """Actions of up to 2 move the state by up to 1 each: to the goal at once where that is near, and else as far as can be."""
    found = plan_first_actions(
        Known(goal), GaussianPolicy(1, -2.0, 2.0), torch.zeros(5, 2, dtype=torch.float64), Draws(),
        horizon=2, candidates=200, best=10, iterations=8,
    )  # fmt: skip
    assert found.shape == (5, 1) and found[:, 0].tolist() == pytest.approx([first] * 5, abs=0.05)


def test_what_comes_after_an_end_promises_nothing() -> None:
    """Rewards of -1 in each of three steps, of which each is the last with probability 1 - p, for $p = 1 / (1 + e^{-1})$."""
    world, p = Known(1.0), 1 / (1 + np.exp(-1))
    none = torch.zeros(3, 1, 1, 1, dtype=torch.float64)
    found = predict_returns(world, torch.zeros(1, 2, dtype=torch.float64), none, none)
    assert found.tolist() == [[pytest.approx(-(1 + p + p * p))]]


def test_an_evaluation_does_what_is_chosen_for_what_it_remembers() -> None:
    task = task_of()
    model = loud(task).float()
    world, memory = task.environment, torch.zeros(EPISODES, task.memory)
    state, total = world.start_episodes(EPISODES, task.rng.child("test").numpy()), np.zeros(EPISODES)
    for _ in range(200):
        _, _, memory = task.outputs_from_memory(model, torch.from_numpy(world.observe_state(state)), memory)
        torques = memory[:, :1].clone()
        memory[:, STATE:] = torch.cat([torques / 2, (torques / 2) ** 2], -1)
        step = world.take_step(state, torques.detach().numpy())
        total, state = total + step.rewards, step.state
    found = task.evaluate(model, chosen=lambda memory: memory[:, :1]).returns
    assert found == pytest.approx(total.tolist(), rel=1e-5) and found != task.evaluate(model).returns


def test_plans_change_what_an_evaluation_returns_and_nothing_of_the_training() -> None:
    found = []
    for more in ("", ", planning=2, candidates=3, best=2, iterations=1"):
        *_, last = reports("dreamer", task=TASK, training=training(more), evaluation={"every": 4})
        assert last.evaluation is not None
        found.append((last.model, last.evaluation.returns))
    (actors, of_actor), (planners, of_plan) = found
    assert torch.equal(actors, planners) and of_actor != of_plan


def test_who_does_not_plan_is_the_cell_that_it_was() -> None:
    assert not {"planning", "candidates", "best", "iterations"} & set(Dreaming().spec())
    assert Dreaming(planning=12, best=4).spec().keys() - Dreaming().spec().keys() == {"planning", "best"}
    with pytest.raises(ConfigError, match="dreaming: best: expected at most the 5 candidates; got 6"):
        Dreaming(candidates=5, best=6)
