"""A mechanism that its calls change is judged by whole lives."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest

import fedguard as fg
from fedguard.bench.audits.mechanisms import as_mechanism
from fedguard.privacy.audit.gaussian import epsilon_of
from fedguard.privacy.blackbox.lives import live, measure_lives
from fedguard.privacy.blackbox.pairs import Pair
from tests.privacy.blackbox.mechanisms import GAUSSIAN, SHAPES, Exhausted, Fading, Faults, Forgetful, Growing

X = tuple(np.full(shape, 0.1, np.float32) for shape in SHAPES)


def audited(found, rounds, samples=300):
    return fg.audit(found, GAUSSIAN, shapes=SHAPES, rounds=rounds, samples=samples, budget=30)


def test_state_is_what_calls_change_and_no_generator() -> None:
    stateful = {
        made: as_mechanism(made, shapes=SHAPES).is_stateful(X) for made in (Fading, Growing, Forgetful, Exhausted)
    }
    assert all(stateful.values())
    assert not as_mechanism(Faults(0).gaussian, shapes=SHAPES).is_stateful(X)

    class Drawing:
        def __init__(self):
            self.drawn = np.random.default_rng()

        def __call__(self, update):
            return [one + self.drawn.normal(size=one.shape) for one in update]

    assert not as_mechanism(Drawing, shapes=SHAPES).is_stateful(X)

    class DrawingInPairs:
        """Python's generator keeps the second of two normal draws."""

        def __init__(self):
            self.drawn, self.log = random.Random(), logging.getLogger("drawing")

        def __call__(self, update):
            self.log.isEnabledFor(self.drawn.randrange(50))
            return [one + self.drawn.gauss(0, 1) for one in update]

    assert not as_mechanism(DrawingInPairs, shapes=SHAPES).is_stateful(X)


def test_a_life_is_the_mean_and_the_last_of_its_releases() -> None:
    class Counting:
        calls = 0

        def __call__(self, update):
            self.calls += 1
            if self.calls > 4:
                raise ValueError("spent")
            return [np.full(one.shape, float(self.calls)) for one in update]

    mechanism = as_mechanism(Counting, shapes=SHAPES)
    mean, last = live(mechanism, X, 3)
    assert mean.vector is not None and set(mean.vector) == {(1 + 2 + 3) / np.sqrt(3)} and set(last.vector) == {3.0}
    mean, last = live(mechanism, X, 9)  # an exception ends a life
    assert mean.vector is not None and set(mean.vector) == {(1 + 2 + 3 + 4) / 2} and set(last.vector) == {4.0}


@pytest.mark.slow
def test_noise_that_ends_after_some_calls_is_named() -> None:
    found = audited(Forgetful, 35, samples=80)
    # The share is of the places where the two inputs differ, which depends on the pair that the search found
    assert found.verdict == "violated" and "after 35 calls of one instance" in found.words
    assert "leave without noise" in found.words
    shorter = audited(Forgetful, 10, samples=80)
    assert shorter.verdict == "consistent", shorter.words  # ten calls are right


@pytest.mark.slow
def test_noise_that_fades_is_shown_by_lives_alone() -> None:
    """After eight calls the noise is a fifth: five times the mu of one release, where eight right ones have sqrt(8) times it."""
    mechanism = as_mechanism(Fading, shapes=SHAPES)
    x = np.zeros(mechanism.size)
    x[0] = 3.0
    found = measure_lives(mechanism, Pair("first", "x and -x", x, -x), 1700, 8, GAUSSIAN, 1e-5, 0.025)
    most, exact = GAUSSIAN.over(8)[0], epsilon_of(5 * GAUSSIAN.mu, 1e-5)
    assert found.shown is not None and most < found.shown.epsilon <= exact
    right = measure_lives(
        as_mechanism(Growing, shapes=SHAPES), Pair("first", "x and -x", x, -x), 1700, 8, GAUSSIAN, 1e-5, 0.025
    )
    assert right.shown is not None and right.shown.epsilon < most and not right.findings


@pytest.mark.slow
@pytest.mark.parametrize("made", [Growing, Exhausted])
def test_right_lives_raise_no_alarm(made) -> None:
    found = audited(made, 20)
    assert found.verdict == "consistent" and found.bounds[0].lives is not None, found.words


def test_lives_that_do_not_fit_the_budget_are_said_to_be_untested() -> None:
    found = fg.audit(Growing, GAUSSIAN, shapes=SHAPES, rounds=9000, samples=80, budget=2)
    assert found.bounds[0].lives is None and "life" in [one.code for one in found.unpaid]
