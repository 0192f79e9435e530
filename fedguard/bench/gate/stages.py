"""The two stages of the gate and its test over the whole suite: pure functions of drops, one drop per seed.

A drop is how much worse a metric is with a seed, in the unit of the metric, so that a larger drop is always worse.

1. Screening, on the suite's own seeds: a cell is flagged if its mean or median drop exceeds its margin.
2. Confirmation, on fresh seeds, which the flag does not bias: a one-sided paired t-test, and beside it trimmed t-tests, which
   cut off up to a quarter of the drops at each end. One ruined seed widens the spread so much that the plain t-test finds
   nothing. The smallest p counts, multiplied by the number of tests, with Holm's correction over all flagged metrics. A
   flagged metric has regressed iff p < alpha and the drop, in the mean of that test, exceeds the margin.
3. Beside both, for small drops that many cells share: a one-sided paired t-test on the seeds' means over all cells.

`benchmarks/gate.py` simulates the error rates of these tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedguard.bench.gate.verdict import Word
from fedguard.metrics.stats import compare_pairs, compare_trimmed_pairs, holm

Key = TypeVar("Key")

#: Level of the test over the whole suite, for all metrics together.
BROAD_LEVEL = 0.01
#: Smallest drop over the whole suite that counts, as a share of the margin. With few seeds a change of rounding can be
#: significant by chance, and a negligible change because it is the same on all seeds.
BROAD_SHARE = 0.25
#: Power at which a drop counts as detectable.
POWER = 0.8


def above(drop: float, margin: float) -> bool:
    """Whether a drop exceeds its margin by more than rounding."""
    # Shares such as 0.70 - 0.68 miss 0.02 in the last bit: a drop of exactly the margin must not depend on that
    return drop > margin and not math.isclose(drop, margin, rel_tol=1e-9, abs_tol=1e-12)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def signs(drops: Sequence[float], margin: float) -> tuple[float, float]:
    """The median drop, and p of the one-sided sign test that it is above the margin: for drops that may be infinite.

    ``p = P(Bin(n, 1/2) >= k)`` where k of n drops are above the margin. If n is even, the median is the lower middle drop.

    Args:
        drops: at least one, none of them NaN.
    """
    n, k = len(drops), sum(above(drop, margin) for drop in drops)
    return sorted(drops)[(n - 1) // 2], sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n


def screen_drops(drops: Sequence[float], margin: float) -> Word | None:
    """The verdict on the suite's own seeds: identical, improved or pass; None if the metric is flagged.

    A drop is infinite if the seed reached the target in only one of the two runs. One seed that no longer reaches it is enough
    for a flag.
    """
    if not drops:
        return "inconclusive"
    # Infinite drops have no mean and no spread, so neither the margin of a mean nor a t interval applies
    if not all(map(math.isfinite, drops)):
        return None if math.inf in drops else "improved" if max(drops) < -margin else "pass"
    if not any(drops):
        return "identical"
    # The median too: one seed that improved much can hide in the mean that all others became worse
    if above(mean(drops), margin) or above(median(drops), margin):
        return None
    # A flag is only a suspicion, retested on fresh seeds. "Improved" is final, so it takes an interval here
    if above(-mean(drops), margin):
        found = compare_pairs(drops)
        if found.half_width is not None and found.mean + found.half_width < 0:
            return "improved"
    return "pass"


@dataclass(frozen=True)
class ConfirmationResult:
    """The verdict of the fresh seeds on one metric: regressed, inconclusive, or pass if the drop was not confirmed.

    ``cut``: number of drops cut off at each end before ``drop`` is taken as their mean.
    """

    verdict: Word
    drop: float
    p_value: float
    cut: int = 0


def confirm_drops(
    fresh: Mapping[Key, Sequence[float]], margins: Mapping[Key, float], alpha: float
) -> dict[Key, ConfirmationResult]:
    """The second stage, for all flagged metrics at once.

    Args:
        fresh: the drops on fresh seeds, at least one for each metric; one finite drop gives p = 1.
    """
    tests = {key: _test(drops, margins[key]) for key, drops in fresh.items()}
    adjusted = holm([p_value for _, p_value, _ in tests.values()])
    found = {}
    for (key, (drop, _, cut)), p_value in zip(tests.items(), adjusted, strict=True):
        # The test is of a drop above 0. Without the margin, a drop of rounding would regress if all seeds shared it
        worse = above(drop, margins[key])
        verdict: Word = "pass" if not worse else "regressed" if p_value < alpha else "inconclusive"
        found[key] = ConfirmationResult(verdict, drop, p_value, cut)
    return found


def _cuts(seeds: int) -> range:
    """Numbers of drops cut off at each end in the trimmed tests: 1 to a quarter of the seeds, as long as three are left."""
    return range(1, min(seeds // 4, (seeds - 3) // 2) + 1)


def _test(drops: Sequence[float], margin: float) -> tuple[float, float, int]:
    """The drop, p, and the number of drops cut off at each end; median and sign test if a drop is infinite."""
    if not all(map(math.isfinite, drops)):
        return *signs(drops, margin), 0
    plain = compare_pairs(drops)
    found = [(plain.mean, 1.0 if plain.p_above is None else plain.p_above, 0)]
    found += [(*compare_trimmed_pairs(drops, cut), cut) for cut in _cuts(len(drops))]
    # Tests with a drop above the margin first: by p alone, a test with a lower mean could acquit what another one proves
    drop, p_value, cut = min(found, key=lambda one: (not above(one[0], margin), one[1]))
    return drop, min(1.0, len(found) * p_value), cut  # Bonferroni, for choosing among the tests


@dataclass(frozen=True)
class SuiteResult:
    """The verdict of all cells together on one metric."""

    verdict: Word
    drop: float
    p_value: float | None


def judge_across_cells(
    drops: Mapping[str, Sequence[Sequence[float]]], margins: Mapping[str, float]
) -> dict[str, SuiteResult]:
    """The test over the whole suite.

    Args:
        drops: for each metric ``[cells][seeds]``, the same seeds for all cells.
    """
    # One mean per seed: cells with the same seed share data and partition, so they are no independent observations
    seeds = {figure: [mean(column) for column in zip(*cells, strict=True)] for figure, cells in drops.items()}
    tests = {figure: compare_pairs(values) for figure, values in seeds.items()}
    known = [figure for figure, test in tests.items() if test.p_above is not None]
    adjusted = dict(zip(known, holm([tests[figure].p_above or 0.0 for figure in known]), strict=True))
    return {
        figure: SuiteResult(
            _judge_suite(drops[figure], test.mean, margins[figure], adjusted.get(figure)),
            test.mean,
            adjusted.get(figure),
        )
        for figure, test in tests.items()
    }


def _judge_suite(cells: Sequence[Sequence[float]], drop: float, margin: float, p_value: float | None) -> Word:
    if not any(any(cell) for cell in cells):
        return "identical"
    if not above(drop, BROAD_SHARE * margin):
        return "pass"
    if p_value is None:  # one seed cannot be tested
        return "inconclusive"
    if p_value < BROAD_LEVEL:
        return "regressed"
    # Not proven, but as large as a regression of each cell would have to be
    return "inconclusive" if above(drop, margin) else "pass"


def detectable(spread: float, margin: float, alpha: float, screening: int, confirming: int) -> float | None:
    """The drop that both stages together find with a power of 80 %, if nothing else is flagged.

    Drops are assumed normal, ``N(d, spread²)`` for each seed. The trimmed tests, which then add little, are left out.
    Stage 1 finds d with ``P(mean_n1 > margin)``, stage 2 with ``P(mean_n2 > max(margin, t s / sqrt(n2)))``, where s is the
    fresh seeds' own spread, independent of their mean, and t the quantile of Student's distribution. The stages share no seed.
    The spread itself is estimated from few seeds, so the result is approximate.

    Args:
        spread: standard deviation of a drop over seeds.
        screening, confirming: n1 and n2, the number of seeds of each stage.

    Returns:
        the drop in the unit of ``margin``; None with too few seeds to test.
    """
    if confirming < 2 or screening < 1:
        return None
    if spread <= 1e-9 * max(margin, 1.0):  # rounding
        return margin
    from scipy.optimize import brentq

    def missing(drop: float) -> float:
        return power(drop, spread, margin, alpha, screening, confirming) - POWER

    # A drop of just the margin passes the first stage half the time, below POWER: the root lies above it
    highest = margin + spread
    while missing(highest) < 0:
        highest = margin + 2 * (highest - margin)
    return float(brentq(missing, margin, highest, xtol=1e-4 * spread))


def power(drop: float, spread: float, margin: float, alpha: float, screening: int, confirming: int) -> float:
    """The probability that a drop of one cell is judged a regression; see `detectable`."""
    from scipy.special import ndtr

    # The level of each single test, as `_test` multiplies p by the number of tests
    spreads, quantile = _of_student(alpha / (1 + len(_cuts(confirming))), confirming - 1)
    bars = np.maximum(margin, quantile * spread * spreads / math.sqrt(confirming))
    second = ndtr((drop - bars) * math.sqrt(confirming) / spread).mean()
    return float(ndtr((drop - margin) * math.sqrt(screening) / spread) * second)


@lru_cache(maxsize=8)
def _of_student(alpha: float, freedom: int) -> tuple[NDArray[np.float64], float]:
    """256 equally likely values of s / sigma for these degrees of freedom, and the upper quantile of Student's t."""
    from scipy.special import gammaincinv, stdtrit

    # freedom s² / sigma² is chi-squared: its quantiles at the middles of 256 equal parts stand for an integral over it
    middles = (np.arange(256) + 0.5) / 256
    return np.sqrt(gammaincinv(freedom / 2, middles) * 2 / freedom), -float(stdtrit(freedom, alpha))
