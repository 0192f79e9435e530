"""Conditional stochastic rounding, against enumeration of all its outcomes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fedguard.errors import ConfigError, InputError
from fedguard.privacy import rounding
from fedguard.privacy.rounding import ConditionalRounding, stochastic
from fedguard.secagg.entropy import expand_seed


def outcomes(values):
    """Every vector that rounding can give, with its probability without the condition."""
    for ups in itertools.product((0, 1), repeat=len(values)):
        below = [math.floor(value) for value in values]
        chances = [v - b if up else 1 - (v - b) for v, b, up in zip(values, below, ups, strict=True)]
        yield np.array([b + up for b, up in zip(below, ups, strict=True)]), math.prod(chances)


def vectors(dim, count, norm, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        vector = rng.standard_normal(dim) * rng.integers(0, 2, dim)
        yield vector / max(np.linalg.norm(vector), 1e-9) * norm * rng.choice([1.0, rng.random()])


def test_rounding_without_condition_is_unbiased():
    values = np.array([0.25, -0.25, 3.9, -7.5, 1e-3, 1000.01, 4.0, -4.0, 0.0])
    draws = np.array([stochastic(values, expand_seed(b"%d" % i)) for i in range(20_000)])
    fraction = values - np.floor(values)
    assert (abs(draws.mean(0) - values) <= 4 * np.sqrt(fraction * (1 - fraction) / len(draws))).all()
    assert set(np.unique(draws - np.floor(values))) == {0, 1}
    assert (draws[:, 6:] == values[6:]).all()


def test_whole_numbers_never_move_and_fractions_may(monkeypatch):
    monkeypatch.setattr(rounding, "keystream", lambda key, count: bytes(count))  # the lowest draw there is: up
    assert stochastic(np.array([3.0, -3.0, 0.0, 2.0**-40, -0.5]), expand_seed(b"")).tolist() == [3, -3, 0, 1, 0]
    monkeypatch.setattr(rounding, "keystream", lambda key, count: b"\xff" * count)  # the highest: down
    assert stochastic(np.array([3.0, 1 - 2.0**-40, -0.5]), expand_seed(b"")).tolist() == [3, 0, -1]


def test_the_law_given_the_bound_for_two_coordinates():
    """Up-up, of norm sqrt(2), is thrown away; the three others keep their proportions."""
    values = np.array([0.6, 0.5])
    rounding = ConditionalRounding(norm=0.79, dim=2, beta=0.99)
    assert rounding.bound == 1
    kept = {tuple(r.tolist()): p for r, p in outcomes(values) if r @ r <= 1}
    assert len(kept) == 3
    entropy = expand_seed(b"law")
    draws = [tuple(rounding(values, entropy).tolist()) for _ in range(20_000)]
    assert set(draws) == set(kept)
    expected = [kept[r] / sum(kept.values()) * len(draws) for r in kept]
    assert stats.chisquare([draws.count(r) for r in kept], expected).pvalue > 0.001


@pytest.mark.parametrize(
    ("dim", "norm", "beta"), [(1, 3.7, 0.6), (3, 0.9, 0.9), (6, 2.2, 0.5), (9, 1.0, 0.97), (9, 6.0, 0.2)]
)
def test_the_condition_fails_with_probability_beta_at_most_and_bias_stays_below_its_bound(dim, norm, beta):
    rounding = ConditionalRounding(norm=norm, dim=dim, beta=beta)
    for values in vectors(dim, 30, norm):
        kept = [(r, p) for r, p in outcomes(values) if r @ r <= rounding.bound]
        mass = sum(p for _, p in kept)
        assert mass >= 1 - beta
        mean = sum(p * r for r, p in kept) / mass
        assert np.linalg.norm(mean - values) <= rounding.bias + 1e-9
        assert all(np.abs(r).sum() <= rounding.l1 + 1e-9 for r, _ in kept)


def test_the_bound_as_the_paper_writes_it():
    """Theorem 1 with gamma = 1: the smaller of the two, one case each."""
    assert ConditionalRounding(norm=10.0, dim=4, beta=math.exp(-0.5)).bound == 100 + 1 + 11
    assert ConditionalRounding(norm=1.0, dim=4, beta=1e-30).bound == 9
    one = ConditionalRounding(norm=1.5, dim=100, beta=math.exp(-0.5))
    assert one.bound == math.floor(2.25 + 25 + 6.5)
    assert one.l2 == math.sqrt(33)
    assert one.l1 == 33  # of integers: below sqrt(100 * 33)
    assert ConditionalRounding(norm=10.0, dim=4, beta=math.exp(-0.5)).l1 == pytest.approx(math.sqrt(4 * 112))


def test_the_bound_holds_for_long_vectors_and_tries_are_thrown_away():
    dim, norm = 5000, 20.0
    rounding = ConditionalRounding(norm=norm, dim=dim, beta=0.9)
    entropy = expand_seed(b"long")
    # Half of the coordinates at one half is the worst there is: the norm grows by d / 4.
    values = np.full(dim, norm / math.sqrt(dim))
    free = [int(r @ r) for r in (stochastic(values, entropy) for _ in range(300))]
    sure = [int(r @ r) for r in (rounding(values, entropy) for _ in range(300))]
    assert max(sure) <= rounding.bound
    tight = ConditionalRounding(norm=norm, dim=dim, beta=0.9)
    tight.__dict__["bound"] = int(np.median(free))
    assert max(int(r @ r) for r in (tight(values, entropy) for _ in range(300))) <= np.median(free) < max(free)


def test_the_largest_vectors_do_not_overflow():
    rounding = ConditionalRounding(norm=2.0**30, dim=3, beta=0.5)
    assert rounding(np.array([2.0**30, 0.0, 0.0]), expand_seed(b"")).tolist() == [2**30, 0, 0]


def test_errors():
    with pytest.raises(ConfigError, match="dim"):
        ConditionalRounding(norm=1.0, dim=0, beta=0.5)
    for beta in (0.0, 1.0, math.nan):
        with pytest.raises(ConfigError, match="beta"):
            ConditionalRounding(norm=1.0, dim=1, beta=beta)
    for norm in (0.0, 2.0**31, math.nan):
        with pytest.raises(ConfigError, match="norm"):
            ConditionalRounding(norm=norm, dim=1, beta=0.5)
    rounding = ConditionalRounding(norm=1.0, dim=2, beta=0.5)
    for values in (np.array([1.0, 0.1]), np.array([1.0]), np.array([math.nan, 0.0])):
        with pytest.raises(InputError, match="Clip first"):
            rounding(values, expand_seed(b""))
