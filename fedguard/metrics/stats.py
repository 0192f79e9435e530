"""Intervals, and tests on pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Fewest seeds for an interval: with two, most intervals with the right coverage span most of the scale
ENOUGH = 3

#: Differences that are closer to each other than this share of the largest are equal up to rounding
ROUNDING = 1e-9

Bounds = tuple[float, float]


class CensoredValue(float):
    """A censored value: the event did not happen up to here, so its true value is larger."""

    def __str__(self) -> str:
        return f">{float(self):g}"


class BoundedValue(float):
    """A value with bounds that belong to what was measured and not to the metric.

    Attributes:
        bounds: smallest and largest possible value, such as of the returns of an environment.
    """

    bounds: Bounds

    def __new__(cls, value: float, bounds: Bounds) -> BoundedValue:
        made = super().__new__(cls, value)
        made.bounds = bounds
        return made

    def __reduce__(self) -> tuple[type[BoundedValue], tuple[float, Bounds]]:
        return BoundedValue, (float(self), self.bounds)


def has_lower_bound(values: Iterable[float]) -> bool:
    """Whether one of these is a lower bound."""
    return any(isinstance(value, CensoredValue) for value in values)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval from ``low`` to ``high``; None if there are too few seeds.

    If ``censored`` of the values are `CensoredValue`, the mean is a lower bound, and there is no interval.
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
    """A mean with an interval within the metric's bounds.

    Without bounds it is Student's: ``mean +- h`` with ``h = t_{n-1} s / sqrt(n)``. Between bounds it is Student's on the logit
    scale, by the delta method: ``expit(logit(m) +- h / (m (1 - m)))``, with m and h of the values scaled to [0, 1]. It is as
    long as Student's if the values are close together, and longer towards the middle if they are near a bound. There is no
    interval with fewer than `ENOUGH` seeds or with censored values. If all values have bounds of their own (`BoundedValue`),
    the widest of these apply.

    Args:
        values: one value per seed, at least one.
        bounds: smallest and largest possible value of the metric.
        level: confidence level.
    """
    bounds_alone = sum(isinstance(value, CensoredValue) for value in values)
    if bounds_alone or len(values) < ENOUGH:
        return Estimate(math.fsum(values) / len(values), None, None, len(values), bounds_alone)
    found = student(values, level)
    half = found.half_width or 0.0
    own = [value.bounds for value in values if isinstance(value, BoundedValue)]
    if len(own) == len(values):
        bounds = min(low for low, _ in own), max(high for _, high in own)
    if bounds is None or half == 0:
        return found
    lowest, width = bounds[0], bounds[1] - bounds[0]
    mean = (found.mean - lowest) / width
    if not 0 < mean < 1:
        return found
    center, side = math.log(mean / (1 - mean)), half / width / (mean * (1 - mean))
    low, high = (lowest + width * _expit(center + sign * side) for sign in (-1, 1))
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
    """The part of a title about seeds: ``mean of 5 seeds [95 % interval]``."""
    if seeds == 1:
        return "1 seed, so no interval"
    if seeds < ENOUGH:
        return f"mean of {seeds} seeds: no interval worth the name"
    return f"mean of {seeds} seeds [95 % interval]"


def holm_levels(p_values: Sequence[float], level: float) -> list[float]:
    """The level that Holm's procedure leaves to each: an interval at 1 less it excludes 0 exactly if `holm` is below ``level``.

    ``level / (m - i)`` for the i-th of the sorted p-values, counted from 0; after the step at which the procedure stops, the
    level of that step.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    stopped = sum(one < level for one in holm(p_values))
    levels = [level] * len(p_values)
    for rank, index in enumerate(order):
        levels[index] = level / (len(order) - min(rank, stopped))
    return levels


def bracket(mean: float, half_width: float, form: str) -> str:
    """``[50.9, 80.4]``: the ends of an interval around its mean, each in this format."""
    return f"[{mean - half_width:{form}}, {mean + half_width:{form}}]"


def p_text(p_value: float) -> str:
    """``p = .03``, ``p = .0004``, ``p < .0001``, ``p = 1``."""
    if p_value < 0.0001:
        return "p < .0001"
    digits = next(places for places in (2, 3, 4) if p_value >= 10.0**-places or places == 4)
    said = f"{p_value:.{digits}f}"
    return f"p = {'1' if float(said) >= 1 else said.removeprefix('0')}"


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


@dataclass(frozen=True)
class PairedDifference:
    """Paired differences, such as of one metric on the same seeds before and after a change.

    Attributes:
        mean: mean of the differences.
        half_width: half-width of its 95 % interval; None for a single pair.
        pairs: number of pairs.
        p_value: of the two-sided t-test that the mean is 0; p_above: of the one-sided test that it is not above 0. None for a
            single pair. For equal differences, see `compare_pairs`.
    """

    mean: float
    half_width: float | None
    pairs: int
    p_value: float | None
    p_above: float | None


def compare_pairs(differences: Sequence[float], level: float = 0.95) -> PairedDifference:
    """Student's t on the differences of pairs: ``t = mean / (s / sqrt(n))`` with n - 1 degrees of freedom.

    Equal differences have no standard deviation to use. Accuracies come in steps, so differences may be equal by chance. Normal
    noise around 0, rounded to steps, is k steps with a probability of at most about ``1 / (k sqrt(2 pi e))``, whatever its
    standard deviation. So n equal differences have ``p = zeta(n) / (2 pi e)^(n/2)``, and twice this two-sided.

    Args:
        differences: one per pair, at least one.
        level: confidence level of the interval.
    """
    found = student(differences, level)
    if found.half_width is None:
        return PairedDifference(found.mean, None, 1, None, None)
    from scipy.special import stdtr, stdtrit

    n = len(differences)
    if max(differences) - min(differences) <= ROUNDING * max(map(abs, differences)):
        from scipy.special import zeta

        chance = float(zeta(n)) * (2 * math.pi * math.e) ** (-n / 2)
        return PairedDifference(
            found.mean, 0.0, n, 2 * chance if found.mean else 1.0, chance if found.mean > 0 else 1.0
        )
    statistic = found.mean / (found.half_width / float(stdtrit(n - 1, (1 + level) / 2)))
    either, above = float(2 * stdtr(n - 1, -abs(statistic))), float(stdtr(n - 1, -statistic))
    return PairedDifference(found.mean, found.half_width, n, either, above)


def compare_trimmed_pairs(differences: Sequence[float], cut: int) -> tuple[float, float]:
    """The mean without the ``cut`` smallest and largest differences, and p of the one-sided test that it is not above 0.

    ``t = m (1 - 2 cut / n) / (s_w / sqrt(n))``. m is the mean of the kept differences, and s_w the standard deviation after
    each cut value is replaced by the nearest kept one (Tukey and McLaughlin 1963). So a few extreme values, which inflate the
    standard deviation, do not hide what the others agree on. The degrees of freedom are ``n - 2 cut - 2``, one fewer than the
    source's, because its test rejects too often with so few differences: of eight normal ones it finds 6.9 % significant at 5
    %, and this one 4.6 %. If the kept differences are equal, p is the one of `compare_pairs`.

    Args:
        differences: at least ``2 cut + 3``.
    """
    n, ordered = len(differences), sorted(differences)
    middle = ordered[cut : n - cut]
    mean = math.fsum(middle) / len(middle)
    winsorized = [middle[0]] * cut + middle + [middle[-1]] * cut
    center = math.fsum(winsorized) / n
    spread = math.sqrt(math.fsum((value - center) ** 2 for value in winsorized) / (n - 1))
    if middle[0] == middle[-1]:
        return mean, compare_pairs(middle).p_above or 1.0
    from scipy.special import stdtr

    return mean, float(stdtr(len(middle) - 2, -mean * (1 - 2 * cut / n) / (spread / math.sqrt(n))))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, so that the probability of any false positive stays at the level (Holm 1979).

    ``p'_(i) = max over j <= i of min(1, (m - j + 1) p_(j))`` for the sorted p-values.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
