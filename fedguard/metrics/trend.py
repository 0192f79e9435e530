"""Whether a training's curve still rises at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.metrics.returns import read_score_curve
from fedguard.metrics.trajectory import FINAL_EVALUATIONS


@dataclass(frozen=True)
class Rise:
    """The end of a rising curve, along its least-squares line.

    Attributes:
        evaluations: number of last evaluations in the fit.
        rise: rise of the line, from the first of them to the last.
        level: value of the line at the last.
    """

    evaluations: int
    rise: float
    level: float


def take_moments(result: Mapping[str, Any]) -> list[float]:
    """The evaluations that the final metric of a record may average, each as often as it counts, up to `FINAL_EVALUATIONS`."""
    found = read_score_curve(result)
    moments = result["curve"].get("moments") or [1] * len(found)
    return [value for value, times in zip(found, moments, strict=True) for _ in range(min(times, FINAL_EVALUATIONS))]


def rising(curve: Sequence[float]) -> Rise | None:
    """The rise of the evaluations in the final metric, the last of `take_moments`; None if it is not significant.

    With three or more evaluations it is tested by the slope b of the least-squares line, at 5 % by Student's t with k - 2
    degrees of freedom, ``b / (s / sqrt(sum (t - mean t)^2))``; with two it is their difference.
    """
    last = list(curve[-FINAL_EVALUATIONS:])
    k = len(last)
    if k < 2:
        return None
    middle, mean = (k - 1) / 2, math.fsum(last) / k
    spread = math.fsum((t - middle) ** 2 for t in range(k))
    slope = math.fsum((t - middle) * value for t, value in enumerate(last)) / spread
    if slope <= 0:
        return None
    residuals = math.fsum((value - mean - slope * (t - middle)) ** 2 for t, value in enumerate(last))
    if k > 2 and residuals > 0:
        from scipy.special import stdtr

        if stdtr(k - 2, -slope / math.sqrt(residuals / (k - 2) / spread)) >= 0.05:
            return None
    return Rise(k, slope * (k - 1), mean + slope * middle)
