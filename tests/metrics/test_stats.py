"""Intervals hold what they say; tests on pairs: differences without spread are held against rounded noise; Holm by definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import Estimate, compare_pairs, estimate, holm, over_seeds, student
from fedguard.rng import Rng


@pytest.mark.parametrize("pairs", [2, 3])
def test_equal_differences_are_as_rare_in_rounded_noise_as_their_p_value_says(pairs):
    """For the spread at which they are most frequent, and only where they are all on one side."""
    draw, most = Rng(3).child(pairs).numpy(), 0.0
    for spread in (0.5, 0.7, 1.0, 1.5, 2.5):
        rounded = np.round(spread * draw.standard_normal((400_000, pairs)))
        most = max(most, float(((rounded == rounded[:, :1]).all(1) & (rounded[:, 0] > 0)).mean()))
    claimed = compare_pairs([1.0] * pairs).p_above
    assert most <= claimed
    assert claimed < 3 * most
    assert compare_pairs([1.0] * pairs).p_value == 2 * claimed


def test_equal_differences_at_zero_or_below_are_no_evidence():
    assert compare_pairs([0.0, 0.0, 0.0]).p_value == 1.0
    assert compare_pairs([-1.0] * 8).p_above == 1.0
    assert compare_pairs([-1.0] * 8).p_value < 1e-4


def test_holm_by_its_definition():
    p_values = [0.01, 0.04, 0.03, 0.005]
    order = sorted(range(4), key=p_values.__getitem__)
    expected = [0.0] * 4
    for rank, index in enumerate(order):
        expected[index] = max(min(1.0, (4 - j) * p_values[order[j]]) for j in range(rank + 1))
    assert holm(p_values) == pytest.approx(expected)


def covered(draw, mean, close, seeds):
    """How often the interval of a share holds its expectation, for Beta distributions from close together to far apart."""
    values = draw.beta(mean * close, (1 - mean) * close, (1500, seeds))
    found = [estimate(row, (0.0, 1.0)) for row in values.tolist()]
    assert all(0 <= one.low <= one.mean <= one.high <= 1 for one in found)
    return sum(one.low <= mean <= one.high for one in found) / len(found)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize(("mean", "close"), [(0.9, 300), (0.9, 30), (0.5, 30), (0.5, 3), (0.1, 10), (0.02, 50)])
def test_the_interval_of_a_share_holds_its_expectation_in_95_of_100_cases(mean, close, seeds):
    """1,500 draws have a standard error of 0.6 points; of the skewest, at 2 %, the method itself holds 93 to 95 %."""
    draw = Rng(5).child(int(100 * mean), close, seeds).numpy()
    assert covered(draw, mean, close, seeds) > 0.91


def test_students_interval_of_a_share_near_its_bound_would_hold_it_less_often():
    draw = Rng(6).numpy()
    values = draw.beta(0.5, 4.5, (1500, 3)).tolist()
    plain = sum(one.low <= 0.1 <= one.high for one in map(student, values))
    ours = sum(one.low <= 0.1 <= one.high for one in (estimate(row, (0.0, 1.0)) for row in values))
    assert plain / 1500 < 0.87 < 0.91 < ours / 1500


def test_the_interval_of_a_share_by_its_formula_and_at_its_bounds():
    found = estimate([0.3, 0.4, 0.5], (0.0, 1.0))
    side = 4.302652729911275 * 0.1 / math.sqrt(3) / 0.24
    assert found.low == pytest.approx(1 / (1 + math.exp(-(math.log(0.4 / 0.6) - side))))
    assert found.high == pytest.approx(1 / (1 + math.exp(-(math.log(0.4 / 0.6) + side))))
    assert estimate([1.0, 1.0, 1.0], (0.0, 1.0)) == estimate([1.0, 1.0, 1.0])
    lost = estimate([-0.9, -0.2, 0.8], (-1.0, 1.0))
    assert -1 < lost.low < lost.mean < lost.high < 1
    assert estimate([5.0, 9.0, 70.0]).low < 0  # a figure without bounds has Student's


def test_two_seeds_have_no_interval_and_titles_say_so():
    assert estimate([0.2, 0.9], (0.0, 1.0)) == estimate([0.2, 0.9]) == Estimate(pytest.approx(0.55), None, None, 2)
    assert over_seeds(2) == "mean of 2 seeds: no interval worth the name"
    assert over_seeds(1) == "1 seed, so no interval"


@pytest.mark.parametrize(
    ("mean", "low", "high", "said"),
    [
        (0.674, 0.509, 0.804, "[50.9, 80.4]"),  # not "±16.4", which would end at 83.8
        (0.877, 0.856, 0.896, "[85.6, 89.6]"),
        (0.052, 0.009, 0.255, "[0.9, 25.5]"),
        (-0.02, -0.05, 0.01, "[-5.0, 1.0]"),
        (1.0, 1.0, 1.0, "[100.0, 100.0]"),
        (0.5, None, None, ""),
    ],
)
def test_an_interval_is_said_by_its_ends(mean, low, high, said):
    assert FIGURES["final_accuracy"].interval(Estimate(mean, low, high, 3)) == said
