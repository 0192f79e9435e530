"""Who is first, and who cannot be told apart from it: against scipy's paired t-test, Holm by hand, and textbook sample sizes."""

from __future__ import annotations

import math

import pytest
from scipy.stats import ttest_rel

from fedguard.metrics.ranking import rank, seeds_needed
from fedguard.metrics.stats import compare_pairs, p_text

SCORES = {
    "low": {0: 0.10, 1: 0.12, 2: 0.10, 3: 0.13, 4: 0.11},
    "first": {0: 0.70, 1: 0.75, 2: 0.66, 3: 0.71, 4: 0.80},
    "near": {0: 0.69, 1: 0.66, 2: 0.68, 3: 0.69, 4: 0.71},
    "below": {0: 0.62, 1: 0.69, 2: 0.60, 3: 0.62, 4: 0.70},
}


def test_each_is_tested_against_the_first_by_seed_with_holms_correction():
    found = rank(SCORES)
    assert (found.first, found.seeds) == ("first", 5)
    assert [one.name for one in found.behind] == ["near", "below", "low"]
    raw = {
        name: ttest_rel(list(SCORES["first"].values()), list(SCORES[name].values())).pvalue
        for name in ("near", "below", "low")
    }
    assert raw["low"] < raw["below"] < raw["near"]
    expected = {"low": 3 * raw["low"], "below": 2 * raw["below"], "near": raw["near"]}
    for one in found.behind:
        assert one.p_value == pytest.approx(expected[one.name])
        assert one.difference == pytest.approx(
            sum(SCORES["first"][seed] - SCORES[one.name][seed] for seed in range(5)) / 5
        )
        assert (one.low > 0) == (one.p_value < 0.05)  # the interval says what the test says
    assert found.group == ("first", "near")
    assert set(found.ahead_on_all) == {"below", "low"}


def test_pairs_decide_not_the_spread_of_each():
    """Both vary by twenty points over seeds, and one is two points above the other on each."""
    first = {seed: 0.5 + 0.1 * (seed % 3) for seed in range(6)}
    second = {seed: value - 0.02 - 0.001 * seed for seed, value in first.items()}
    assert rank({"a": first, "b": second}).group == ("a",)
    shuffled = {seed: second[(seed + 1) % 6] for seed in second}
    assert rank({"a": first, "b": shuffled}).group == ("a", "b")


def test_holm_counts_every_comparison():
    """p = .03 of one comparison tells apart; of three, it does not."""
    first = {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}
    behind = {0: 0.42, 1: 0.38, 2: 0.47, 3: 0.40}
    p = ttest_rel(list(first.values()), list(behind.values())).pvalue
    assert 0.02 < p < 0.05
    assert rank({"a": first, "b": behind}).group == ("a",)
    three = rank(
        {
            "a": first,
            "b": behind,
            "c": {k: v - 0.01 for k, v in behind.items()},
            "d": {k: v - 0.011 for k, v in behind.items()},
        }
    )
    assert set(three.group) == {"a", "b", "c", "d"}


def test_only_common_seeds_are_paired_and_two_are_too_few():
    found = rank({"a": {0: 0.9, 1: 0.91, 2: 0.92}, "b": {2: 0.1, 3: 0.1, 1: 0.2}, "c": {7: 0.2}})
    b, c = sorted(found.behind, key=lambda one: one.name)
    assert b.difference == pytest.approx((0.71 + 0.82) / 2)
    assert (b.p_value, b.apart, c.p_value) == (None, False, None)
    assert math.isnan(c.difference)


@pytest.mark.parametrize(("effect", "seeds"), [(0.5, 34), (0.8, 15), (1.0, 10), (1.5, 6), (3.0, 5)])
def test_seeds_needed_are_those_of_the_textbooks(effect, seeds):
    """Cohen's tables for a two-sided paired t-test at 5 % with a power of 80 %; and five at least."""
    values = _like(effect, 3)
    if seeds > 33:  # more than may be proposed from three on
        side = math.sqrt(8 / 6)
        values = [effect - side, effect, effect + side] * 3
    assert seeds_needed(values) == seeds


def _like(effect, count):
    """So many values with this mean and a standard deviation of 1."""
    assert count == 3
    return [effect - 1, effect, effect + 1]


def test_seeds_needed_grow_with_the_level_and_end_somewhere():
    assert seeds_needed(_like(1.0, 3), 0.05 / 4) > seeds_needed(_like(1.0, 3))
    assert seeds_needed(_like(0.2, 3)) is None
    assert seeds_needed([0.1, -0.1]) is None
    assert seeds_needed([0.1, 0.1, 0.1], 0.01) == 5


def test_equal_differences_that_were_rounded_differently_are_equal():
    differences = [0.7 - 0.6, 0.8 - 0.7, 0.9 - 0.8]
    assert len(set(differences)) > 1
    assert compare_pairs(differences).p_value == pytest.approx(compare_pairs([0.1, 0.1, 0.1]).p_value)
    assert compare_pairs(differences).half_width == 0.0


@pytest.mark.parametrize(
    ("p_value", "said"),
    [
        (0.031, "p = .03"),
        (0.5, "p = .50"),
        (1.0, "p = 1"),
        (0.0042, "p = .004"),
        (0.0004, "p = .0004"),
        (1e-9, "p < .0001"),
    ],
)
def test_words_of_p(p_value, said):
    assert p_text(p_value) == said
