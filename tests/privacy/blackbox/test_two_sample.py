"""Bounds for any law: closed forms, plain loops, and laws of which epsilon is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedguard.privacy.audit.gaussian import epsilon_of
from fedguard.privacy.blackbox.features import Recorder
from fedguard.privacy.blackbox.law import lower_bound_by_law, seeming_law
from fedguard.privacy.blackbox.mechanism import Outcome
from fedguard.privacy.blackbox.pairs import Pair
from fedguard.privacy.blackbox.two_sample import TwoSample, for_one, for_rounds, largest_provable


def features(rows: np.ndarray, gap: np.ndarray):
    pair = Pair("one", "one and another", gap, np.zeros_like(gap))
    return Recorder(pair, len(rows)).record([Outcome(row) for row in rows])


def sides(draw, gap: np.ndarray, n: int, seed: int):
    rng = np.random.default_rng(seed)
    return features(gap + draw(rng, (n, len(gap))), gap), features(draw(rng, (n, len(gap))), gap)


def normal(scale: float):
    return lambda rng, shape: rng.normal(0, scale, shape)


def test_one_release_is_the_inequality_of_the_definition() -> None:
    assert for_one(np.asarray(0.1), np.asarray(0.2), 0.05) == pytest.approx(math.log(0.75 / 0.1))
    assert for_one(np.asarray(0.9), np.asarray(0.5), 0.0) == 0.0


@pytest.mark.parametrize(("a", "b", "rounds", "delta"), [(0.3, 0.1, 7, 0.0), (0.05, 0.6, 12, 1e-3), (0.5, 0.5, 9, 0.0)])
def test_rounds_are_binomial_tails(a: float, b: float, rounds: int, delta: float) -> None:
    def tail(p: float, k: int) -> float:
        return sum(math.comb(rounds, i) * p**i * (1 - p) ** (rounds - i) for i in range(k, rounds + 1))

    best = 0.0
    for k in range(rounds + 1):
        more, other = tail(1 - b, k) - delta, tail(a, k)
        best = max(best, math.log(more / other) if more > 0 else 0.0)
        less, rest = 1 - tail(a, k + 1) - delta, 1 - tail(1 - b, k + 1)
        best = max(best, math.log(less / rest) if less > 0 and rest > 0 else 0.0)
    assert float(for_rounds(np.asarray(a), np.asarray(b), rounds, delta)) == pytest.approx(best, abs=1e-6)
    if a + b == 1:
        assert best == pytest.approx(0.0, abs=1e-9)


def test_rounds_go_beyond_the_logarithm_of_the_calls() -> None:
    assert for_rounds(np.asarray(0.01), np.asarray(0.01), 50, 0.0) > 150 > 10 * math.log(5000)


def test_what_can_be_proven_grows_with_the_calls() -> None:
    assert 0 < largest_provable(100, 1e-5, 0.05) < largest_provable(10_000, 1e-5, 0.05) < math.log(10_000)


def test_null_scores_prove_nothing() -> None:
    """Of 60 audits with 500 calls at a risk of 5 %, at most 8 may show anything (binomial, one in a thousand)."""
    gap = np.asarray([1.0, 0.0, 0.0])
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, y = (features(rng.standard_normal((500, 3)), gap) for _ in range(2))
        tests = TwoSample(x, y, delta=1e-5, rounds=20, over=1e-5, risk=0.05)
        alarms += tests.judge().epsilon > 0 or tests.judge_rounds().epsilon > 0
    assert alarms <= 8


@pytest.mark.parametrize("mu", [0.5, 1.5, 3.0])
def test_bounds_stay_below_a_known_epsilon_and_come_near(mu: float) -> None:
    gap = np.asarray([0.0, mu * 2.0, 0.0])
    exact, over = epsilon_of(mu, 1e-5), epsilon_of(mu * math.sqrt(20), 1e-5)
    for seed in range(2):
        x, y = sides(normal(2.0), gap, 4000, seed)
        tests = TwoSample(x, y, delta=1e-5, rounds=20, over=1e-5, risk=0.05)
        one, many = tests.judge(), tests.judge_rounds()
        assert 0 < one.epsilon <= exact and 0.25 * over < many.epsilon <= over
        by_law = lower_bound_by_law(*tests.holdout, delta=1e-5, over=1e-5, rounds=20, risk=0.05)
        assert by_law is not None and by_law.law == "gaussian"
        assert (0.65 if mu < 1 else 0.8) * exact <= by_law.epsilon <= exact and by_law.over_rounds <= over


def test_laws_are_told_apart() -> None:
    gap = np.asarray([1.0, 0.5, 0.0])
    draws = {
        "gaussian": normal(1.0),
        "laplace": lambda rng, shape: rng.laplace(0, 1.0, shape),
        None: lambda rng, shape: rng.uniform(-1, 1, shape),
    }
    for law, draw in draws.items():
        assert seeming_law(*sides(draw, gap, 4000, 1)) == law
    mixture = lambda rng, shape: np.where(rng.random(shape[0]) < 0.05, 0, 1)[:, None] * rng.normal(0, 1, shape)  # noqa: E731
    assert seeming_law(*sides(mixture, gap, 4000, 1)) is None
    assert seeming_law(*sides(normal(1.0), gap, 500, 1)) is None  # too few calls
    x, _ = sides(normal(1.0), gap, 4000, 2)
    assert seeming_law(x, sides(normal(1.5), gap, 4000, 3)[1]) is None  # another spread


def test_laplace_is_shown_by_the_length_in_l1() -> None:
    gap = np.full(9, 0.4)  # epsilon = 3.6 / b
    x, y = sides(lambda rng, shape: rng.laplace(0, 0.5, shape), gap, 6000, 4)
    found = lower_bound_by_law(x, y, delta=0.0, over=0.0, rounds=10, risk=0.05)
    assert found is not None and found.law == "laplace"
    assert 0.85 * 7.2 <= found.epsilon <= 7.2 and found.over_rounds == pytest.approx(10 * found.epsilon)
