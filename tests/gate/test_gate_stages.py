"""The gate's statistics: by hand, by closed forms, and by what happens when nothing or something has changed."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist, stdev

import numpy as np
import pytest

from fedguard.bench.gate.stages import above, confirm_drops, detectable, judge_across_cells, power, screen_drops
from fedguard.metrics.stats import compare_trimmed_pairs
from fedguard.rng import Rng

#: The upper 5/3 % and 1 % quantiles of Student's t.
T_983_7, T_99_2 = 2.642, 6.965


def test_the_first_stage_by_hand():
    assert screen_drops([0.0, 0.0, 0.0], 0.02) == "identical"
    assert screen_drops([0.0, 0.0, 1e-17], 0.02) == "pass"  # not to the last bit
    assert screen_drops([0.05, 0.01, 0.0], 0.02) == "pass"  # the mean is the margin itself
    assert screen_drops([0.05, 0.01, 0.01], 0.02) is None
    assert screen_drops([-0.05, -0.06, -0.07], 0.02) == "improved"
    assert screen_drops([-0.20, 0.05, 0.0], 0.02) == "pass"  # better by 5 points on average, and no telling
    assert screen_drops([-0.20], 0.02) == "pass"  # one seed has no interval
    assert screen_drops([0.03], 0.02) is None


def test_a_drop_of_just_the_margin_is_within_it():
    assert not above(0.9 - 0.88, 0.02) and 0.9 - 0.88 > 0.02  # in floats it is above
    assert above(0.0201, 0.02)
    assert not above(0.0, 0.0) and above(1e-6, 0.0)


def test_the_second_stage_is_a_one_sided_t_test_with_holm():
    rng = Rng(1).numpy()
    fresh = {name: list(0.03 + 0.02 * rng.standard_normal(8)) for name in "abcd"}
    found = confirm_drops(fresh, dict.fromkeys(fresh, 0.0), 0.05)
    statistic = {key: sum(v) / 8 / (stdev(v) / math.sqrt(8)) for key, v in fresh.items()}
    plain = {
        key: 3 * min(_p_of_student(statistic[key], 7), *(_trimmed(value, cut)[1] for cut in (1, 2)))
        for key, value in fresh.items()
    }
    highest = 0.0
    for rank, key in enumerate(sorted(plain, key=plain.__getitem__)):
        highest = max(highest, min(1.0, (4 - rank) * plain[key]))
        assert found[key].p_value == pytest.approx(highest, rel=1e-6)
        assert found[key].verdict == ("regressed" if highest < 0.05 else "inconclusive")


def _trimmed(drops: list[float], cut: int) -> tuple[float, float]:
    """The test on eight drops, one or two cut off on each side: its mean and p, by hand."""
    middle = sorted(drops)
    for _ in range(cut):
        middle.remove(max(middle))
        middle.remove(min(middle))
    winsorized = [min(middle)] * cut + middle + [max(middle)] * cut
    assert len(middle) == 8 - 2 * cut and len(winsorized) == 8
    mean = sum(middle) / len(middle)
    return mean, _p_of_student(mean * len(middle) / 8 / (stdev(winsorized) / math.sqrt(8)), len(middle) - 2)


def _p_of_student(statistic: float, freedom: int) -> float:
    """P(T > statistic), by adding up the density in small steps."""
    scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
    steps = 20_000
    width = statistic / steps
    area = sum((1 + ((k + 0.5) * width) ** 2 / freedom) ** (-(freedom + 1) / 2) for k in range(steps)) * width * scale
    return 0.5 - area


def test_the_second_stage_turns_at_the_printed_quantile():
    """Eight drops with mean m and standard deviation s are significant at 5 %, of three tests, iff m / (s / sqrt(8)) > 2.642."""
    pattern = np.array([1, -1, 1, -1, 1, -1, 1, -1]) * math.sqrt(7 / 8)  # mean 0, standard deviation 1
    for factor, verdict in ((1.01, "regressed"), (0.99, "inconclusive")):
        drops = list(pattern + factor * T_983_7 / math.sqrt(8))
        assert confirm_drops({"x": drops}, {"x": 0.01}, 0.05)["x"].verdict == verdict
        assert (
            confirm_drops({"x": drops}, {"x": 5.0}, 0.05)["x"].verdict == "pass"
        )  # within the margin, significant or not


def test_a_ruined_seed_does_not_hide_a_drop():
    """Seven seeds lose ten points; the baseline's eighth had been ruined, so it gains forty."""
    drops = [0.1, 0.11, 0.09, -0.4, 0.1, 0.12, 0.08, 0.1]
    found = confirm_drops({"x": drops}, {"x": 0.02}, 0.05)["x"]
    assert _p_of_student(sum(drops) / 8 / (stdev(drops) / math.sqrt(8)), 7) > 0.2, "a t-test sees nothing"
    mean, p = _trimmed(drops, 1)
    assert p < _trimmed(drops, 2)[1]
    assert (found.verdict, found.cut, found.drop) == ("regressed", 1, pytest.approx(mean))
    assert found.p_value == pytest.approx(3 * p, rel=1e-6)
    two = confirm_drops({"x": [*drops[:-1], -0.5]}, {"x": 0.02}, 0.05)["x"]  # two ruined on one side
    assert (two.verdict, two.cut) == ("regressed", 2)
    assert screen_drops([0.1, -0.4, 0.1], 0.02) is None, "the median of the suite's own seeds"
    assert confirm_drops({"x": [0.1, -0.4, 0.1]}, {"x": 0.02}, 0.05)["x"].verdict == "pass"  # too few to cut any off
    assert (
        confirm_drops({"x": [0.0, 0.0, 0.5, 0.0, 0.6, 0.0, 0.0, 0.0]}, {"x": 0.02}, 0.05)["x"].verdict == "inconclusive"
    )


def test_where_one_seed_in_twenty_is_ruined_a_drop_of_ten_points_is_seen():
    """Each training falls by 50 points in one of twenty cases, before or after; besides, noise of 2 points between both."""
    rng = Rng(4).numpy()

    def differences(runs, seeds, drop):
        ruined = 0.5 * (rng.random((2, runs, seeds)) < 0.05)
        return drop + 0.02 * rng.standard_normal((runs, seeds)) + ruined[1] - ruined[0]

    def share(drop, runs):
        first, second = differences(runs, 3, drop), differences(runs, 8, drop)
        flagged = {key: second[key].tolist() for key in range(runs) if screen_drops(first[key].tolist(), 0.02) is None}
        others = {f"none {key}": [0.0, 0.03, -0.03, 0.0, 0.02, 0.02, -0.02, 0.0] for key in range(beside)}
        tests = [
            confirm_drops({0: one, **others}, dict.fromkeys([0, *others], 0.02), 0.05)[0].verdict
            for one in flagged.values()
        ]
        return tests.count("regressed") / runs

    beside = 0
    assert share(0.10, 1000) > 0.95
    assert share(0.05, 1000) > 0.85
    assert share(0.0, 2000) < 0.01  # a single cell without a change
    beside = 11  # as many others as are flagged of 60 where nothing changed
    assert share(0.10, 1000) > 0.85


def test_the_trimmed_test_keeps_its_level():
    """Of eight differences without a shift, some 4.7 % are significant at 5 %; where some are ruined, no more."""
    rng = Rng(6).numpy()
    for ruined, cut in itertools.product((0.0, 0.05, 0.2), (1, 2)):
        draws = rng.standard_normal((4000, 8))
        draws += 25 * ((rng.random(draws.shape) < ruined).astype(float) - (rng.random(draws.shape) < ruined))
        share = np.mean([compare_trimmed_pairs(draw, cut)[1] < 0.05 for draw in draws.tolist()])
        assert share < 0.056 and (share > 0.036 or ruined)


def test_equal_drops_on_all_fresh_seeds_are_certain():
    assert confirm_drops({"x": [0.1] * 8}, {"x": 0.02}, 0.05)["x"].verdict == "regressed"
    assert confirm_drops({"x": [0.01] * 8}, {"x": 0.02}, 0.05)["x"].verdict == "pass"
    assert confirm_drops({}, {}, 0.05) == {}


def test_the_test_over_the_suite_turns_at_the_printed_quantile():
    """Means of the seeds of -s, 0, s around m have t = m / (s / sqrt(3)), and t must exceed 6.965."""
    for factor, verdict in ((1.01, "regressed"), (0.99, "pass")):
        middle = factor * T_99_2 / math.sqrt(3) * 0.001
        cells = [[middle - 0.001 + side, middle + side, middle + 0.001 + side] for side in (-0.01, 0.0, 0.01)]
        found = judge_across_cells({"final_accuracy": cells}, {"final_accuracy": 0.01})["final_accuracy"]
        assert found.verdict == verdict
        assert found.drop == pytest.approx(middle)


def test_what_all_cells_share():
    def word(cells, margin=0.02):
        return judge_across_cells({"x": cells}, {"x": margin})["x"].verdict

    assert word([[0.0, 0.0], [0.0, 0.0]]) == "identical"
    assert word([[0.006, 0.0061, 0.006], [0.006, 0.006, 0.006]]) == "regressed"
    assert word([[0.006, 0.006, 0.006], [0.006, 0.006, 0.006]]) == "pass"  # steps of an accuracy may be equal by chance
    assert word([[0.005, 0.005], [0.005, 0.005]]) == "pass"  # a quarter of the margin
    assert word([[0.006], [0.006]]) == "inconclusive"  # one seed
    assert word([[-0.1, -0.1], [-0.1, -0.1]]) == "pass"
    two = judge_across_cells({"x": [[0.006, 0.0065, 0.006]], "y": [[0.0, 0.01, -0.01]]}, {"x": 0.02, "y": 0.02})
    alone = judge_across_cells({"x": [[0.006, 0.0065, 0.006]]}, {"x": 0.02})
    assert two["x"].p_value == pytest.approx(2 * alone["x"].p_value)  # Holm over figures


def test_power_is_what_drawn_drops_show():
    rng = Rng(2).numpy()
    for drop, spread, margin in ((0.05, 0.03, 0.02), (0.03, 0.02, 0.02), (0.05, 0.05, 0.02)):
        first = drop + spread * rng.standard_normal((40_000, 3))
        second = drop + spread * rng.standard_normal((40_000, 8))
        statistic = second.mean(1) / (second.std(1, ddof=1) / math.sqrt(8))
        seen = (first.mean(1) > margin) & (second.mean(1) > margin) & (statistic > T_983_7)
        assert power(drop, spread, margin, 0.05, 3, 8) == pytest.approx(seen.mean(), abs=0.01)


def test_the_detectable_drop_has_a_power_of_four_fifths():
    for spread, margin, alpha in ((0.03, 0.02, 0.05), (0.001, 0.02, 0.05), (0.2, 0.0, 0.01), (5.0, 1.0, 0.05)):
        found = detectable(spread, margin, alpha, 3, 8)
        assert power(found, spread, margin, alpha, 3, 8) == pytest.approx(0.8, abs=1e-3)
    assert detectable(0.0, 0.02, 0.05, 3, 8) == 0.02
    assert detectable(0.03, 0.02, 0.05, 3, 0) is None


def test_a_wide_margin_makes_detectable_what_two_normals_say():
    """Where the margin is far above the noise, the t-test is sure, and P = Phi(x sqrt(3)) Phi(x sqrt(8)) with x = (d - m) / s."""
    x = (detectable(0.001, 1.0, 0.05, 3, 8) - 1.0) / 0.001
    phi = NormalDist().cdf
    assert phi(x * math.sqrt(3)) * phi(x * math.sqrt(8)) == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(
    ("noise", "most"),
    [
        pytest.param(0.015, 0.03, marks=pytest.mark.slow),
        pytest.param(0.02, 0.03, marks=pytest.mark.slow),
        (0.0283, 0.06),  # the worst of the three
    ],
)
def test_false_alarms_are_rare_where_the_naive_rule_has_many(noise, most):
    """60 cells, nothing changed. No noise can bring more false alarms than the levels of both tests together, 6 %."""
    rng = Rng(3).child(str(noise)).numpy()
    gate = naive = 0
    changes = 1000
    for _ in range(changes):
        first, second = noise * rng.standard_normal((60, 3)), noise * rng.standard_normal((60, 8))
        flagged = {key: second[key].tolist() for key in range(60) if screen_drops(first[key].tolist(), 0.02) is None}
        words = [one.verdict for one in confirm_drops(flagged, dict.fromkeys(flagged, 0.02), 0.05).values()]
        broad = judge_across_cells({"x": first.tolist()}, {"x": 0.02})["x"].verdict
        gate += "regressed" in (*words, broad)
        naive += bool((first.mean(1) > 0.02).any())
    assert gate / changes <= most
    assert naive / changes >= 0.4
