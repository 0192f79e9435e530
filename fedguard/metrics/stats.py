"""Intervals, and tests on pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Below so many seeds a mean gets no interval: of two seeds, most intervals with the right coverage span most of the scale.
ENOUGH = 3

Bounds = tuple[float, float]


class AtLeast(float):
    """A censored value: what it stands for did not happen up to here, and so is more."""

    def __str__(self) -> str:
        return f">{float(self):g}"


def censored(values: Iterable[float]) -> bool:
    """Whether a lower bound is among these."""
    return any(isinstance(value, AtLeast) for value in values)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval from ``low`` to ``high``; None where too few seeds have none.

    Where ``censored`` of the values are `AtLeast`, the mean is a lower bound, and there is no interval.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int
    censored: int = 0

    @property
    def half_width(self) -> float | None:
        """Half of the interval's length."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def estimate(values: Sequence[float], bounds: Bounds | None = None, level: float = 0.95) -> Estimate:
    """A mean with an interval that stays inside of what the figure can be.

    Without bounds it is Student's: ``mean +- h`` with ``h = t_{n-1} s / sqrt(n)``. Between bounds it is Student's on the logit
    scale, by the delta method: ``expit(logit(m) +- h / (m (1 - m)))``, with m and h of the values scaled to [0, 1].
    It is as long as Student's where the values lie close together, and longer towards the middle where they lie near a bound.
    Fewer than `ENOUGH` seeds have none, nor have censored values.

    Args:
        values: one value per seed, at least one.
        bounds: the least and the most that the figure can be.
        level: confidence level.
    """
    bounds_alone = sum(isinstance(value, AtLeast) for value in values)
    if bounds_alone or len(values) < ENOUGH:
        return Estimate(math.fsum(values) / len(values), None, None, len(values), bounds_alone)
    found = student(values, level)
    half = found.half_width or 0.0
    if bounds is None or half == 0:
        return found
    lowest, width = bounds[0], bounds[1] - bounds[0]
    mean = (found.mean - lowest) / width
    if not 0 < mean < 1:
        return found
    centre, side = math.log(mean / (1 - mean)), half / width / (mean * (1 - mean))
    low, high = (lowest + width * _expit(centre + sign * side) for sign in (-1, 1))
    return Estimate(found.mean, min(low, found.mean), max(high, found.mean), found.seeds)


def student(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Mean and Student's t interval: ``mean +- t_{n-1} * s / sqrt(n)``; a single value has none."""
    n, mean = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Estimate(mean, None, None, 1)
    from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats takes a second to load

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(stdtrit(n - 1, (1 + level) / 2)) * deviation / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def over_seeds(seeds: int) -> str:
    """What a title says of its figures: ``mean of 5 seeds ± 95 % interval``."""
    if seeds == 1:
        return "1 seed, so no interval"
    if seeds < ENOUGH:
        return f"mean of {seeds} seeds: no interval worth the name"
    return f"mean of {seeds} seeds ± 95 % interval"


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


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
    found = student(differences, level)
    if found.half_width is None:
        return Paired(found.mean, None, 1, None, None)
    from scipy.special import stdtr, stdtrit

    n = len(differences)
    if min(differences) == max(differences):
        from scipy.special import zeta

        chance = float(zeta(n)) * (2 * math.pi * math.e) ** (-n / 2)
        return Paired(found.mean, 0.0, n, 2 * chance if found.mean else 1.0, chance if found.mean > 0 else 1.0)
    statistic = found.mean / (found.half_width / float(stdtrit(n - 1, (1 + level) / 2)))
    either, above = float(2 * stdtr(n - 1, -abs(statistic))), float(stdtr(n - 1, -statistic))
    return Paired(found.mean, found.half_width, n, either, above)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, so that the chance of any false one stays at the level (Holm 1979).

    ``p'_(i) = max over j <= i of min(1, (m - j + 1) p_(j))`` for the sorted p-values.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
