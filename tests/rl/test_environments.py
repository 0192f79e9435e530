"""Environments: held against gymnasium's own to the last bit, and what stands where gymnasium would have to be."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from fedguard.contracts import Environment
from fedguard.contracts.acting import unflatten_rollout
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.tasks.environments.cartpole import CartPole, Carts
from fedguard.tasks.environments.gymnasium import Gymnasium
from fedguard.tasks.environments.masked_cartpole import MaskedCartPole
from fedguard.tasks.environments.own import CustomEnvironment
from fedguard.tasks.environments.pendulum import Pendulum, Poles
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.playing import EnvironmentTask

COPIES = 12


def theirs(id: str, state: np.ndarray) -> list[Any]:
    """Gymnasium's environments in given states."""
    made = [gymnasium.make(id) for _ in state]
    for one, row in zip(made, state, strict=True):
        one.reset(seed=0)
        one.unwrapped.state = row.copy()
    return made


def actions_of(world: Environment, rng: np.random.Generator) -> np.ndarray:
    if isinstance(world, CartPole):
        return rng.integers(2, size=COPIES)
    return rng.uniform(-3, 3, (COPIES, 1)).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize(("world", "id"), [(CartPole(), "CartPole-v1"), (Pendulum(), "Pendulum-v1")])
def test_a_step_is_gymnasiums_to_the_last_bit(world: Environment, id: str) -> None:
    rng = np.random.default_rng(3)
    ours = world.start_episodes(COPIES, rng)
    peers = theirs(id, ours.x)
    ends = 0
    for _ in range(120):
        actions = actions_of(world, rng)
        step = world.take_step(ours, actions)
        for row, (peer, action) in enumerate(zip(peers, actions, strict=True)):
            told = peer.unwrapped.step(action)
            assert np.array_equal(step.state.x[row], peer.unwrapped.state)
            assert np.array_equal(world.observe_state(step.state)[row], told[0])
            assert step.terminated[row] == told[2]
            # Of a single number numpy takes x**2 by the power function, of an array by x * x: a unit in the last place apart.
            assert step.rewards[row] == (told[1] if isinstance(world, CartPole) else pytest.approx(told[1], rel=4e-16))
        ends += int(step.terminated.sum())
        ours = world.restart_episodes(step.state, step.terminated, rng)
        for row in np.flatnonzero(step.terminated):
            peers[row].reset(seed=0)
            peers[row].unwrapped.state = ours.x[row].copy()
    assert isinstance(world, Pendulum) or ends > COPIES


@pytest.mark.parametrize(("world", "id"), [(CartPole(), "CartPole-v1"), (Pendulum(), "Pendulum-v1")])
def test_an_episode_starts_as_gymnasiums_does_and_is_cut_off_with_it(world: Environment, id: str) -> None:
    peer = gymnasium.make(id)
    peer.reset(seed=0)
    peer.unwrapped._np_random = np.random.default_rng(9)
    peer.unwrapped.reset()
    ours = world.start_episodes(1, np.random.default_rng(9))
    assert np.array_equal(ours.x[0], peer.unwrapped.state)
    assert world.limit == peer.spec.max_episode_steps
    near = type(ours)(ours.x, np.array([world.limit - 2]))
    first = world.take_step(near, actions_of(world, np.random.default_rng(0))[:1])
    last = world.take_step(first.state, actions_of(world, np.random.default_rng(0))[:1])
    assert (first.truncated.any(), last.truncated.all()) == (False, True)


def test_only_what_is_over_starts_anew_and_counts_its_steps_from_there() -> None:
    world, rng = CartPole(), np.random.default_rng(0)
    state = Carts(world.start_episodes(3, rng).x, np.array([7, 8, 9]))
    again = world.restart_episodes(state, np.array([False, True, False]), rng)
    assert again.steps.tolist() == [7, 0, 9]
    assert np.array_equal(again.x[[0, 2]], state.x[[0, 2]])
    assert not np.array_equal(again.x[1], state.x[1])
    assert state.steps.tolist() == [7, 8, 9]


def test_the_masked_cart_shows_no_velocity() -> None:
    state = CartPole().start_episodes(5, np.random.default_rng(0))
    assert np.array_equal(MaskedCartPole().observe_state(state), CartPole().observe_state(state)[:, [0, 2]])


def test_an_environment_of_the_registry_is_stepped_as_it_would_be_alone() -> None:
    world = Gymnasium(id="CartPole-v1", good=500.0, copies=2)
    state = world.start_episodes(2, np.random.default_rng(0))
    before = state.seen.copy()
    once, twice = (world.take_step(state, np.array([1, 0])) for _ in range(2))
    assert np.array_equal(once.state.seen, twice.state.seen)
    assert np.array_equal(state.seen, before)
    carts = Carts(np.stack([one.unwrapped.state for one in state.each]), np.zeros(2, np.int64))
    assert np.array_equal(CartPole().take_step(carts, np.array([1, 0])).state.x.astype(np.float32), once.state.seen)
    over = world.restart_episodes(once.state, np.array([True, False]), np.random.default_rng(1))
    assert not np.array_equal(over.seen[0], once.state.seen[0])
    assert np.array_equal(over.seen[1], once.state.seen[1])


def test_without_gymnasium_its_environments_say_what_to_install_and_ours_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(
        ConfigError, match=r"gymnasium is not installed\. Install it with: pip install 'fedguard\[rl\]'"
    ):
        _ = Gymnasium(id="Acrobot-v1", good=-60.0).actions
    assert CartPole().start_episodes(2, np.random.default_rng(0)).x.shape == (2, 4)


def test_an_unknown_name_is_one_line() -> None:
    with pytest.raises(ConfigError, match="gymnasium.*failed: NameNotFound"):
        _ = Gymnasium(id="Nowhere-v0", good=0.0).actions


class Corridor:
    """Walk to the right: an environment of somebody's own, which is not gymnasium's."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.at = 0

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        self.at = 0
        return np.array([0.0]), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.at = max(0, self.at + (1 if action else -1))
        return np.array([float(self.at)]), -1.0, self.at == 3, False, {}


class Endless(Corridor):
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))


def test_an_environment_of_ones_own() -> None:
    world = CustomEnvironment(target=UserFunction(f"{__name__}:Corridor"), good=-3.0, steps=5)
    state = world.start_episodes(2, np.random.default_rng(0))
    for walked in range(1, 4):
        step = world.take_step(state, np.array([1, 0]))
        assert step.state.seen[:, 0].tolist() == [walked, 0]
        assert step.terminated.tolist() == [walked == 3, False]
        state = step.state
    endless = CustomEnvironment(target=UserFunction(f"{__name__}:Endless"), good=0.0)
    with pytest.raises(ConfigError, match="expected an action_space that is Discrete"):
        _ = endless.actions


def test_poles_are_cut_off_and_never_over() -> None:
    world = Pendulum()
    step = world.take_step(Poles(np.array([[3.0, 8.0]]), np.array([199])), np.array([[2.0]]))
    assert (step.terminated.any(), step.truncated.all()) == (False, True)


@pytest.mark.parametrize("data", [CartPole(copies=3), Pendulum(copies=3)])
def test_a_rollout_comes_back_from_the_numbers_that_are_sent(data: Environment) -> None:
    task = EnvironmentTask.build_task(data, MLP(hidden=(8,)), 2, Rng(0))
    models, states = task.initial_model(Rng(0)).expand(2, -1), [task.start_actor(Rng(one).numpy()) for one in (0, 1)]
    for one in task.rollouts(models, range(2), states, 60, [Rng(one).numpy() for one in (2, 3)])[0]:
        flat = torch.cat([part.float().flatten() for part in one.parts])
        again = unflatten_rollout(flat, 60, 3, task.shape, task.policy)
        for part, back in zip(one.parts, again.parts, strict=True):
            assert part.dtype == back.dtype and torch.equal(part, back)
        assert one.terminated.any() == isinstance(data, CartPole)
