"""Intervals."""

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
    from scipy.stats import t

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return Estimate(mean, float(t.ppf((1 + level) / 2, n - 1)) * deviation / math.sqrt(n), n)
