"""The two stages of the gate and its test over the whole suite: pure functions of drops, one for each seed.

A drop is by how much a figure is worse with a seed, in the figure's unit, so that more is always worse.

1. Screening, on the suite's own seeds: a cell whose mean or median drop exceeds its margin is flagged.
2. Confirmation, on fresh seeds, which the flag does not bias: a one-sided paired t-test, and beside it one that cuts off the
   least and the most quarter of the drops, since a seed that is ruined in one of two runs swells the spread so much that the
   first sees nothing. The smaller p counts, twice for there being two, with Holm's correction over all that is flagged. What
   is flagged has regressed iff p < alpha and the drop, in the mean of that test, exceeds the margin.
3. Beside both, for small drops that many cells share: a one-sided paired t-test on the seeds' means over all cells.

`benchmarks/gate.py` simulates how often these are wrong.
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

#: Level of the test over the whole suite, for all figures together.
BROAD_LEVEL = 0.01
#: A drop over the whole suite counts from this share of the margin on. With few seeds a change of rounding can be called
#: significant by chance, and one that nobody would mind by its steadiness.
BROAD_SHARE = 0.25
#: The chance at which a drop counts as detectable.
POWER = 0.8


def above(drop: float, margin: float) -> bool:
    """Whether a drop exceeds its margin; equal numbers that were rounded differently are equal."""
    return drop > margin and not math.isclose(drop, margin, rel_tol=1e-9, abs_tol=1e-12)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def signs(drops: Sequence[float], margin: float) -> tuple[float, float]:
    """The median drop, and p of the one-sided sign test that it is above the margin: for drops that may be infinite.

    ``p = P(Bin(n, 1/2) >= k)`` where k of n drops are above the margin. Of an even number the median is the lower middle one.

    Args:
        drops: at least one, none of them NaN.
    """
    n, k = len(drops), sum(above(drop, margin) for drop in drops)
    return sorted(drops)[(n - 1) // 2], sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n


def screen_drops(drops: Sequence[float], margin: float) -> Word | None:
    """What the suite's own seeds say: identical, improved or pass; None if it is flagged.

    Infinite drops are of seeds that reached a target in one of two runs alone. A single one that does so no more is flagged.
    """
    if not drops:
        return "inconclusive"
    if not all(map(math.isfinite, drops)):
        return None if math.inf in drops else "improved" if max(drops) < -margin else "pass"
    if not any(drops):
        return "identical"
    if above(mean(drops), margin) or above(median(drops), margin):
        return None
    if above(-mean(drops), margin):
        found = compare_pairs(drops)
        if found.half_width is not None and found.mean + found.half_width < 0:
            return "improved"
    return "pass"


@dataclass(frozen=True)
class ConfirmationResult:
    """What the fresh seeds say of one figure: regressed, inconclusive, or pass if the drop was not confirmed.

    ``cut``: of how many of the least and of the most drops each ``drop`` is the mean without.
    """

    verdict: Word
    drop: float
    p_value: float
    cut: int = 0


def confirm_drops(
    fresh: Mapping[Key, Sequence[float]], margins: Mapping[Key, float], alpha: float
) -> dict[Key, ConfirmationResult]:
    """The second stage, for all that was flagged at once.

    Args:
        fresh: the drops on fresh seeds, at least one for each; of one finite drop nothing can be proven.
    """
    tests = {key: _test(drops, margins[key]) for key, drops in fresh.items()}
    adjusted = holm([p_value for _, p_value, _ in tests.values()])
    found = {}
    for (key, (drop, _, cut)), p_value in zip(tests.items(), adjusted, strict=True):
        worse = above(drop, margins[key])
        verdict: Word = "pass" if not worse else "regressed" if p_value < alpha else "inconclusive"
        found[key] = ConfirmationResult(verdict, drop, p_value, cut)
    return found


def _cuts(seeds: int) -> range:
    """How many drops are cut off on each side in the tests beside the t-test: 1 to a quarter of them, while three are left."""
    return range(1, min(seeds // 4, (seeds - 3) // 2) + 1)


def _test(drops: Sequence[float], margin: float) -> tuple[float, float, int]:
    """The drop, p, and how many are cut off on each side; the median one with that of the sign test where one is infinite."""
    if not all(map(math.isfinite, drops)):
        return *signs(drops, margin), 0
    plain = compare_pairs(drops)
    found = [(plain.mean, 1.0 if plain.p_above is None else plain.p_above, 0)]
    found += [(*compare_trimmed_pairs(drops, cut), cut) for cut in _cuts(len(drops))]
    drop, p_value, cut = min(found, key=lambda one: (not above(one[0], margin), one[1]))
    return drop, min(1.0, len(found) * p_value), cut


@dataclass(frozen=True)
class SuiteResult:
    """What all cells together say of one figure."""

    verdict: Word
    drop: float
    p_value: float | None


def judge_across_cells(
    drops: Mapping[str, Sequence[Sequence[float]]], margins: Mapping[str, float]
) -> dict[str, SuiteResult]:
    """The test over the whole suite.

    Args:
        drops: for each figure ``[cells][seeds]``, the same seeds for all cells.
    """
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
    return "inconclusive" if above(drop, margin) else "pass"


def detectable(spread: float, margin: float, alpha: float, screening: int, confirming: int) -> float | None:
    """The drop that both stages together find with a chance of 80 %, if nothing else is flagged.

    Drops are taken as normal, ``N(d, spread²)`` for each seed, and the trimmed tests, which then add little, are left out.
    Stage 1 finds d with ``P(mean_n1 > margin)``, stage 2 with ``P(mean_n2 > max(margin, t s / sqrt(n2)))``, where s is the
    fresh seeds' own spread, independent of their mean, and t the quantile of Student's distribution; the stages share no seed.
    The spread itself is estimated from few seeds, so this is a rough figure.

    Args:
        spread: standard deviation of a drop over seeds.
        screening, confirming: n1 and n2, how many seeds each stage has.

    Returns:
        in the unit of ``margin``; None with too few seeds to test.
    """
    if confirming < 2 or screening < 1:
        return None
    if spread <= 1e-9 * max(margin, 1.0):  # rounding
        return margin
    from scipy.optimize import brentq

    def missing(drop: float) -> float:
        return power(drop, spread, margin, alpha, screening, confirming) - POWER

    highest = margin + spread
    while missing(highest) < 0:
        highest = margin + 2 * (highest - margin)
    return float(brentq(missing, margin, highest, xtol=1e-4 * spread))


def power(drop: float, spread: float, margin: float, alpha: float, screening: int, confirming: int) -> float:
    """The chance that a drop of one cell is called a regression; see `detectable`."""
    from scipy.special import ndtr

    spreads, quantile = _of_student(alpha / (1 + len(_cuts(confirming))), confirming - 1)
    bars = np.maximum(margin, quantile * spread * spreads / math.sqrt(confirming))
    second = ndtr((drop - bars) * math.sqrt(confirming) / spread).mean()
    return float(ndtr((drop - margin) * math.sqrt(screening) / spread) * second)


@lru_cache(maxsize=8)
def _of_student(alpha: float, freedom: int) -> tuple[NDArray[np.float64], float]:
    """256 equally likely values of s / sigma with so many degrees of freedom, and the upper quantile of Student's t."""
    from scipy.special import gammaincinv, stdtrit

    middles = (np.arange(256) + 0.5) / 256
    return np.sqrt(gammaincinv(freedom / 2, middles) * 2 / freedom), -float(stdtrit(freedom, alpha))
