"""Intervals, and tests on pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with the half-width of its 95 % interval; None for a single seed, which has no interval."""

    mean: float
    half_width: float | None
    seeds: int


def estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Mean and Student's t interval: ``mean +- t_{n-1} * s / sqrt(n)``.

    Args:
        values: one value per seed, at least one.
        level: confidence level.
    """
    n, mean = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Estimate(mean, None, 1)
    from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats takes a second to load

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return Estimate(mean, float(stdtrit(n - 1, (1 + level) / 2)) * deviation / math.sqrt(n), n)


@dataclass(frozen=True)
class Paired:
    """Differences of pairs, such as one figure with the same seeds before and after a change.

    Attributes:
        mean: of the differences.
        half_width: of its 95 % interval; None for a single pair.
        pairs: how many.
        p_value: of the two-sided t-test that the mean is 0; p_above: of the one-sided one that it is not above 0. None for a
            single pair. Of equal differences, see `paired`.
    """

    mean: float
    half_width: float | None
    pairs: int
    p_value: float | None
    p_above: float | None


def paired(differences: Sequence[float], level: float = 0.95) -> Paired:
    """Student's t on the differences of pairs: ``t = mean / (s / sqrt(n))`` with n - 1 degrees of freedom.

    Equal differences have no spread to go by. Accuracies come in steps, so they may be equal by chance: normal noise around
    0, rounded to steps, shows k of them with a probability of about ``1 / (k sqrt(2 pi e))`` at most, whatever its spread.
    So it shows n times the same with ``p = zeta(n) / (2 pi e)^(n/2)``, and twice that on both sides.

    Args:
        differences: one per pair, at least one.
        level: confidence level of the interval.
    """
    found = estimate(differences, level)
    if found.half_width is None:
        return Paired(found.mean, None, 1, None, None)
    from scipy.stats import t

    n = len(differences)
    if min(differences) == max(differences):
        from scipy.special import zeta

        chance = float(zeta(n)) * (2 * math.pi * math.e) ** (-n / 2)
        return Paired(found.mean, 0.0, n, 2 * chance if found.mean else 1.0, chance if found.mean > 0 else 1.0)
    statistic = found.mean / (found.half_width / float(t.ppf((1 + level) / 2, n - 1)))
    return Paired(
        found.mean, found.half_width, n, float(2 * t.sf(abs(statistic), n - 1)), float(t.sf(statistic, n - 1))
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, so that the chance of any false one stays at the level (Holm 1979).

    ``p'_(i) = max over j <= i of min(1, (m - j + 1) p_(j))`` for the sorted p-values.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
