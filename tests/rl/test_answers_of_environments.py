"""Environments of the user's own are held against gymnasium's interface, at `step` as at `reset`, before a training and in it."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from fedguard.contracts import Box, Choices, Environment, Step
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError, ContractError
from fedguard.rng import Rng
from fedguard.tasks.environments.cartpole import CartPole
from fedguard.tasks.environments.own import CustomEnvironment
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.playing import EnvironmentTask

GOOD = (np.zeros(2, np.float32), 1.0, False, False, {})


class World:
    """Six steps, 1 for each step to the right; ``WRONG`` changes what it says, from step ``FROM`` on."""

    observation_space: Any = SimpleNamespace(shape=(2,))
    action_space: Any = SimpleNamespace(n=2)
    WRONG: ClassVar[Any] = {}
    FROM = 1
    LENGTH = 6

    def __init__(self) -> None:
        self.t = 0
        for name, value in self.WRONG.get("held", {}).items():
            setattr(self, name, value)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.WRONG.get("reset", (np.zeros(2, np.float32), {}))

    def step(self, action: int) -> Any:
        assert self.t < self.LENGTH, "stepped on after the end"
        self.t += 1
        if self.t >= self.FROM:
            if "step" in self.WRONG:
                return self.WRONG["step"]
            if "told" in self.WRONG:
                return self.WRONG["told"](self, action)
        return np.array([self.t / 6, action], np.float32), float(action), self.t >= self.LENGTH, False, {}


def playing(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any] | None = None, at: int = 1, good: float = 6.0, **changed: Any
) -> EnvironmentTask:
    monkeypatch.setattr(World, "WRONG", wrong or {})
    monkeypatch.setattr(World, "FROM", at)
    for name, value in changed.items():
        monkeypatch.setattr(World, name, value)
    world = CustomEnvironment(target=UserFunction(f"{__name__}:World"), good=good, steps=50, copies=2)
    return EnvironmentTask.build_task(world, MLP(hidden=(4,)), 2, Rng(0))


def part(number: int, value: Any) -> dict[str, Any]:
    """What it says, with one of five values replaced."""
    return {"step": (*GOOD[:number], value, *GOOD[number + 1 :])}


NAMED = r"^environment\(.*World.*\): "
FIVE = r"expected \(observation, reward, terminated, truncated, info\); got "
STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "four values": ({"step": (GOOD[0], 1.0, False, {"t": 1})}, FIVE + r"4 values, as gym had it before 0\.26\. Return"),
    "three values": ({"step": GOOD[:3]}, FIVE + "3 values"),
    "no tuple": ({"step": GOOD[0]}, FIVE + r"a numpy.ndarray of float32 \[2\]"),
    "nothing": ({"step": None}, FIVE + "None"),
    "another shape": (part(0, np.zeros(3)), r"expected observations of shape \(2,\); got \(3,\)"),
    "a column": (part(0, np.zeros((2, 1))), r"expected observations of shape \(2,\); got \(2, 1\)"),
    "ragged lists": (part(0, [[0.0], [1.0, 2.0]]), r"expected an observation of numbers, of shape \(2,\); got list"),
    "words": (part(0, np.array(["a", "b"])), "expected an observation of numbers"),
    "objects": (part(0, np.array([None, 1.0])), "expected an observation of numbers"),
    "complex numbers": (part(0, np.zeros(2, complex)), "expected an observation of numbers"),
    "a dictionary": (part(0, {"x": 1.0}), "expected an observation of numbers"),
    "an observation of NaN": (part(0, np.array([0.0, np.nan])), "expected observations that are finite in float32; one holds nan"),
    "beyond float32": (part(0, np.array([0.0, 1e300])), r"expected observations that are finite in float32; one holds 1e\+300"),
    "NaN": (part(1, float("nan")), "expected a finite reward; got nan"),
    "infinite": (part(1, -np.inf), "expected a finite reward; got -inf"),
    "an array": (part(1, np.array([1.0])), r"expected a reward that is one number; got a numpy.ndarray of float64 \[1\]"),
    "a list": (part(1, [1.0]), "expected a reward that is one number; got list"),
    "no reward": (part(1, None), "expected a reward that is one number; got None"),
    "a text": (part(1, "1.0"), "expected a reward that is one number; got str '1.0'"),
    "terminated 0": (part(2, 0), "expected terminated to be True or False; got int 0"),
    "terminated 1.0": (part(2, 1.0), "expected terminated to be True or False; got float 1.0"),
    "terminated of each": (part(2, np.array([False, True])), "expected terminated to be True or False; got a numpy"),
    "truncated as info": (part(3, {"t": 1}), "expected truncated to be True or False; got dict"),
    "truncated None": (part(3, None), "expected truncated to be True or False; got None"),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_none_is_one_line_before_a_training(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    wrong, said = STEPS[name]
    with pytest.raises(ConfigError, match=NAMED + "step 1: " + said) as raised:
        playing(monkeypatch, wrong).rehearse()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", STEPS)
def test_and_in_the_middle_of_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    wrong, said = STEPS[name]
    task = playing(monkeypatch, wrong, at=4)
    model, state = task.initial_model(Rng(0)), task.start_actor(Rng(1).numpy())
    task.rollouts(model[None], [0], [state], 3, [Rng(2).numpy()])
    with pytest.raises(ConfigError, match=NAMED + "step 4: " + said):
        task.rollouts(model[None], [0], [state], 4, [Rng(2).numpy()])
    with pytest.raises(ConfigError, match=NAMED + "step 4: " + said):
        task.evaluate(model)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (np.zeros(2, np.float32), r"expected \(observation, info\); got a numpy.ndarray .*before 0\.26\. Return \(observation, \{\}\)"),
        ((np.zeros(2), {}, 3), r"expected \(observation, info\); got 3 values"),
        ((np.zeros(3), {}), r"expected observations of shape \(2,\); got \(3,\)"),
        ((np.array([np.inf, 0.0]), {}), "expected observations that are finite in float32; one holds inf"),
        (None, r"expected \(observation, info\); got None"),
    ],
)  # fmt: skip
def test_a_start_that_is_none(monkeypatch: pytest.MonkeyPatch, answer: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=NAMED + r"reset\(seed=\.\.\.\): " + said):
        playing(monkeypatch, {"reset": answer}).rehearse()


def test_a_reset_that_knows_no_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=NAMED + r"reset\(seed=\.\.\.\): failed: TypeError: .*'seed'"):
        playing(monkeypatch, reset=lambda self: (np.zeros(2), {})).rehearse()


@pytest.mark.parametrize(
    "told",
    [
        lambda world, action: ([0.0, 1.0], 1, world.t >= 6, False, None),
        lambda world, action: (np.zeros(2), np.float64(action), np.bool_(world.t >= 6), np.False_, {}),
        lambda world, action: [np.zeros(2, np.uint8), np.array(float(action)), np.array(world.t >= 6), False, {}],
    ],
)
def test_what_means_the_same_is_taken(monkeypatch: pytest.MonkeyPatch, told: Any) -> None:
    task = playing(monkeypatch, {"told": told}, good=7.0)
    task.rehearse()
    assert 0 < task.guess <= 6 and len(task.evaluate(task.initial_model(Rng(0))).returns) == 100


SPACES: list[tuple[Any, Any]] = [
    (SimpleNamespace(n=3), Choices(3)),
    (gymnasium.spaces.Discrete(3), Choices(3)),
    (SimpleNamespace(low=-1.0, high=2.0, shape=(3,)), Box(3, -1.0, 2.0)),
    (gymnasium.spaces.Box(-1, 2, (3,)), Box(3, -1.0, 2.0)),
    (gymnasium.spaces.Discrete(3, start=1), None),
    (gymnasium.spaces.MultiBinary(3), None),
    (gymnasium.spaces.MultiDiscrete([3, 2]), None),
    (gymnasium.spaces.Box(0, 9, (3,), np.int64), None),
    (gymnasium.spaces.Box(-np.inf, np.inf, (3,)), None),
    (gymnasium.spaces.Box(-1, 1, (3, 2)), None),
    (gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)}), None),
    (SimpleNamespace(n=3, low=-1.0, high=1.0), None),
    (SimpleNamespace(n=2.0), None),
    (SimpleNamespace(n=True), None),
    (SimpleNamespace(n=0), None),
    (SimpleNamespace(low=1.0, high=1.0, shape=(2,)), None),
    (SimpleNamespace(low="a", high="b"), None),
    (2, None),
    ({"n": 2}, None),
    (None, None),
]


@pytest.mark.parametrize(("space", "expected"), SPACES)
def test_a_space_of_actions_by_what_it_is_not_by_one_attribute(
    monkeypatch: pytest.MonkeyPatch, space: Any, expected: Any
) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match=NAMED + "expected an action_space that is Discrete from 0, or a Box"):
            playing(monkeypatch, action_space=space)
    else:
        assert playing(monkeypatch, action_space=space).environment.actions == expected


@pytest.mark.parametrize("shape", [(), None, 2, (0,), ("a",), (2.0,)])
def test_a_space_of_observations_without_a_shape(monkeypatch: pytest.MonkeyPatch, shape: Any) -> None:
    with pytest.raises(ConfigError, match=NAMED + "expected an observation_space that is a Box, with a shape"):
        playing(monkeypatch, observation_space=SimpleNamespace(shape=shape))


def test_one_that_cannot_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    task = playing(monkeypatch, {"held": {"lock": threading.Lock()}})
    with pytest.raises(
        ConfigError, match=NAMED + r"copy\.deepcopy: failed: TypeError: cannot pickle.*Expected an environment"
    ):
        task.rehearse()


ELSEWHERE: dict[str, Any] = {"t": 0, "draws": np.random.default_rng()}


def counts_elsewhere(world: World, action: int) -> Any:
    ELSEWHERE["t"] += 1
    return np.array([ELSEWHERE["t"] % 7, action], np.float32), float(action), world.t >= 6, False, {}


def draws_elsewhere(world: World, action: int) -> Any:
    return ELSEWHERE["draws"].random(2), float(action), world.t >= 6, False, {}


def draws_globally(world: World, action: int) -> Any:
    return np.random.random(2), float(action), world.t >= 6, False, {}  # noqa: NPY002


@pytest.mark.parametrize("told", [counts_elsewhere, draws_elsewhere])
def test_one_whose_copies_share_what_they_go_by(monkeypatch: pytest.MonkeyPatch, told: Any) -> None:
    with pytest.raises(
        ConfigError, match=NAMED + "step 1: expected the same answer to the same action in the same state"
    ):
        playing(monkeypatch, {"told": told}).rehearse()


def test_one_that_hears_no_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = np.random.default_rng()
    with pytest.raises(ConfigError, match=NAMED + "expected the same start from the same seed; got two that differ"):
        playing(monkeypatch, reset=lambda self, seed: (own.random(2), {})).rehearse()


def test_one_that_draws_globally_passes_and_leaves_the_global_generator_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    playing(monkeypatch, {"told": draws_globally}).rehearse()
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("good", [6.0, 5.0])
def test_a_best_that_chance_reaches_is_refused(monkeypatch: pytest.MonkeyPatch, good: float) -> None:
    """A reward of 1 whatever is done: acting at random returns 6, in each episode."""
    always = {"told": lambda world, action: (np.zeros(2), 1.0, world.t >= 6, False, {})}
    said = f"good: expected more than 6, the mean return of 100 episodes of random actions.*got {good:g}"
    with pytest.raises(ConfigError, match=said):
        playing(monkeypatch, always, good=good).rehearse()
    playing(monkeypatch, always, good=6.5).rehearse()


def test_a_long_episode_is_judged_in_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    always = {"told": lambda world, action: (np.zeros(2), 1.0, False, world.t >= 205, {})}
    task = playing(monkeypatch, always, good=205.0, LENGTH=205)
    task = replace(task, environment=replace(task.environment, steps=300))
    task.rehearse()
    monkeypatch.setattr("fedguard.tasks.playing.EPISODES", 2)
    with pytest.raises(ConfigError, match=re.escape("good: expected more than 205")):
        _ = task.guess


def ends_by_chance(world: Any, action: int) -> Any:
    """It ends with the second step to the right, and answers nothing sensible after that."""
    assert world.rights < 2, "stepped on after the end"
    world.rights += int(action)
    return np.array([world.t / 6, action], np.float32), 1.0, world.rights == 2, world.t >= 6, {}


def reset_rights(world: Any, seed: int) -> Any:
    world.t = world.rights = 0
    return np.zeros(2, np.float32), {}


def test_nobody_steps_on_after_the_end_of_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    task = playing(monkeypatch, {"told": ends_by_chance}, good=7.0, reset=reset_rights)
    task.rehearse()
    # The second success in fair tosses comes with toss k by (k - 1) / 2^k; what is left is cut off after 6.
    assert task.guess == pytest.approx(2 / 4 + 3 * 2 / 8 + 4 * 3 / 16 + 5 * 4 / 32 + 6 * 6 / 32, abs=0.5)


@dataclass(frozen=True, kw_only=True)
class Bent(CartPole):
    """CartPole whose answers are bent in one way."""

    name = "bent"
    how: str = ""

    def observe_state(self, state: Any) -> Any:
        seen = super().observe_state(state)
        return {"float64": seen.astype(float), "one less": seen[1:], "nan": seen * np.nan}.get(self.how, seen)

    def take_step(self, state: Any, actions: Any) -> Any:
        step = super().take_step(state, actions)
        return {
            "a tuple": (state, 1.0, False, False),
            "one reward": Step(step.state, np.array(1.0), step.terminated, step.truncated),
            "a reward of NaN": Step(step.state, step.rewards * np.nan, step.terminated, step.truncated),
            "ends as numbers": Step(step.state, step.rewards, step.terminated * 1.0, step.truncated),
        }.get(self.how, step)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "float64",
            r"observe_state: expected a numpy array of float32 \[8, 4\]; got a numpy.ndarray of float64 \[8, 4\]",
        ),
        (
            "one less",
            r"observe_state: expected a numpy array of float32 \[8, 4\]; got a numpy.ndarray of float32 \[7, 4\]",
        ),
        ("nan", "observe_state: expected finite numbers; got nan"),
        ("a tuple", "take_step: expected Step; got tuple"),
        ("one reward", r"take_step: rewards: expected a numpy array of numbers \[8\]"),
        ("a reward of NaN", "take_step: rewards: expected finite numbers"),
        (
            "ends as numbers",
            r"take_step: terminated: expected a numpy array of bool \[8\]; got a numpy.ndarray of float64",
        ),
    ],
)
def test_a_plug_in_is_held_against_the_contract_of_environments(how: str, said: str) -> None:
    world: Environment = Bent(how=how)
    with pytest.raises(ContractError, match=f"bent broke its contract: {said}"):
        EnvironmentTask.build_task(world, MLP(hidden=(4,)), 2, Rng(0)).rehearse()
