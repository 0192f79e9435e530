"""A mean return lies between what an episode can return at least and at most, and so does its interval."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import fedguard as fg
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.returns import in_shares
from fedguard.metrics.stats import BoundedValue, estimate
from fedguard.rng import Rng
from fedguard.tasks.environments.cartpole import CartPole
from fedguard.tasks.environments.own import CustomEnvironment
from fedguard.tasks.environments.pendulum import Pendulum
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.playing import EnvironmentTask
from tests.rl.acting import settings

WORST, BEST, GUESS = 1.0, 500.0, 20.0
FINALS = (500.0, 380.0, 512.0 - 12.0, 440.0, 499.0)


def record(final: float, bounds: tuple[float, float] | None = (WORST, BEST)) -> dict:
    changes = {"drop": final - 520.0, "absence": None, "harm": final - 520.0, "tax": -3.0}
    controls = dict.fromkeys(("clean_mean", "clean_defense", "attack_mean", "attack_defense", "silent_mean"), final)
    returns = {
        "final": final,
        "best": final,
        "last": final,
        "normalized": (final - GUESS) / (BEST - GUESS),
        "guess": GUESS,
        "perfect": BEST,
        "bounds": bounds,
        "episodes": 100,
        "controls": controls,
    } | changes
    return {"threat_card": {"goal": "untargeted"}, "result": {"returns": returns}}


def by_hand(values, low, high) -> tuple[float, float]:
    """The logit of the mean's place between the bounds, with Student's interval of four degrees of freedom brought along."""
    mean = sum(values) / len(values)
    side = 2.7764451 * math.sqrt(sum((one - mean) ** 2 for one in values) / 4 / 5) / (high - low)
    place = (mean - low) / (high - low)
    center = math.log(place / (1 - place))
    ends = [1 / (1 + math.exp(-(center + sign * side / (place * (1 - place))))) for sign in (-1, 1)]
    return low + (high - low) * ends[0], low + (high - low) * ends[1]


@pytest.mark.parametrize(
    ("figure", "low", "high", "of"),
    [
        ("final_return", WORST, BEST, lambda final: final),
        ("best_return", WORST, BEST, lambda final: final),
        ("normalized_return", (WORST - GUESS) / (BEST - GUESS), 1.0, lambda final: (final - GUESS) / (BEST - GUESS)),
        ("return_drop", WORST - BEST, BEST - WORST, lambda final: final - 520.0),
        ("return_harm", WORST - BEST, BEST - WORST, lambda final: final - 520.0),
    ],
)
def test_intervals_of_returns_stay_within_the_environment(figure, low, high, of):
    known = FIGURES[figure]
    found = known.estimate([known.of(record(final)) for final in FINALS])
    assert (found.low, found.high) == pytest.approx(by_hand([of(final) for final in FINALS], low, high))
    assert low <= found.low < found.high <= high
    free = known.estimate([known.of(record(final, None)) for final in FINALS])
    assert free.mean == pytest.approx(found.mean) and free.high - free.mean == pytest.approx(free.mean - free.low)
    if figure == "final_return":
        assert free.high > BEST  # without bounds a mean of more than any episode returns


def test_in_shares_they_lie_between_normalized_bounds_and_not_between_0_and_1():
    """A policy that is worse than guessing has less than 0."""
    finals = [3.0, 9.0, 25.0]
    values = [in_shares(record(final)["result"])["final_accuracy"] for final in finals]
    worst = (WORST - GUESS) / (BEST - GUESS)
    assert [value.bounds for value in values] == [(pytest.approx(worst), 1.0)] * 3
    found = FIGURES["final_accuracy"].estimate(values)
    assert worst < found.low < found.mean < 0 < found.high
    drop = in_shares(record(3.0)["result"])["accuracy_drop"]
    assert drop == pytest.approx(-517 / 480) and drop.bounds == pytest.approx((-499 / 480, 499 / 480))


def test_the_widest_bounds_hold_where_they_differ_and_none_where_one_has_none():
    values = [0.5, 1.5, 9.0]
    wide = estimate([BoundedValue(0.5, (0.0, 4.0)), BoundedValue(1.5, (-1.0, 3.0)), BoundedValue(9.0, (0.0, 10.0))])
    assert wide == estimate(values, (-1.0, 10.0))
    assert estimate([BoundedValue(0.5, (0.0, 4.0)), 1.5, 9.0]) == estimate(values)
    assert pickle.loads(pickle.dumps(BoundedValue(0.5, (0.0, 4.0)))).bounds == (0.0, 4.0)


@pytest.mark.parametrize("world", [CartPole(), Pendulum()], ids=lambda one: one.name)
def test_episodes_of_anybody_return_what_the_environment_says(world):
    """Of one who guesses, of one who does the worst that is known, and of the start that is the worst."""
    rng = np.random.default_rng(3)
    low, high = world.bounds
    for act in range(3):
        state, returns, playing = world.start_episodes(40, rng), np.zeros(40), np.ones(40, bool)
        if world.name == "pendulum":
            state.x[:5] = [math.pi - 1e-9, 8.0]  # hanging, at full speed
        while playing.any():
            if world.name == "pendulum":
                omega = world.observe_state(state)[:, 2:]
                actions = [rng.uniform(-2, 2, (40, 1)), 2 * np.sign(omega), np.full((40, 1), 2.0)][act]
            else:
                actions = [rng.integers(0, 2, 40), np.zeros(40, int), np.ones(40, int)][act]
            step = world.take_step(state, actions)
            assert world.name == "cartpole" or (step.rewards >= low / 200).all()
            returns += np.where(playing, step.rewards, 0.0)
            playing &= ~(step.terminated | step.truncated)
            state = step.state
        assert (returns >= low).all() and (returns <= high).all()


def test_bounds_of_an_environment_of_ones_own_are_held_against_it():
    target = "made_up:world"
    for given, said in (
        ({"least": 0.0}, "expected both least and most"),
        ({"most": 10.0}, "expected both least and most"),
        ({"least": 3.0, "most": 3.0}, "expected least < most"),
        ({"least": 0.0, "most": 5.0}, "good <= most; got least 0, most 5 and good 7"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):
            CustomEnvironment(target=target, good=7.0, **given)
    assert CustomEnvironment(target=target, good=7.0).bounds is None
    assert CustomEnvironment(target=target, good=7.0, least=-1.0, most=7.0).bounds == (-1.0, 7.0)


def test_a_record_that_is_read_back_has_the_bounds_of_its_environment(tmp_path):
    suite = settings("a2c", training={"rounds": 2}, evaluation={"every": 2}) | {"seeds": 1, "name": "acted"}
    run = fg.run(suite, store=tmp_path)
    (record,) = fg.open_run("acted", store=tmp_path).ran.values()
    assert record["result"]["returns"]["bounds"] == [1.0, 500.0]
    assert run.rows()[0]["final_return"].bounds == (1.0, 500.0)


class Corridor:
    """Three steps to the right, each of which costs 1."""

    observation_space = Box(0, 9, (1,))
    action_space = Discrete(2)

    def __init__(self):
        self.at = 0

    def reset(self, seed):
        self.at = 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        return np.array([float(self.at)], np.float32), -1.0, self.at == 3, False, {}


def test_episodes_beyond_what_was_said_end_the_evaluation_with_a_line():
    def task(**bounds):
        world = CustomEnvironment(target=UserFunction(f"{__name__}:Corridor"), good=-3.0, steps=6, **bounds)
        return EnvironmentTask.build_task(world, MLP(hidden=(4,)), 2, Rng(0))

    assert -6 <= task(least=-6.0, most=-3.0).guess < -3
    with pytest.raises(
        ConfigError, match=r"expected episodes that return -4 to -3, as least and most say; got -6 to -[34]"
    ):
        _ = task(least=-4.0, most=-3.0).guess
