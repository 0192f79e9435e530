"""Scores that tell two inputs x and y apart: functions of one call, larger for x, fitted on calls that are then discarded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from fedguard.contracts.audit import Reals
from fedguard.privacy.blackbox.features import Features, count_values

#: Features of n calls -> float64 ``[n]``.
Score: TypeAlias = Callable[[Features], Reals]
#: Features of fitting calls with x and with y -> a score; None if it has nothing to fit.
Fit: TypeAlias = Callable[[Features, Features], Score | None]


def fit_scores(x: Features, y: Features) -> dict[str, Score]:
    """All scores by name."""
    found = {name: fit(x, y) for name, fit in FITS.items()}
    return {name: score for name, score in found.items() if score is not None}


def _of_feature(name: str) -> Fit:
    """A single feature, with the sign that makes it larger under x."""

    def fit(x: Features, y: Features) -> Score | None:
        one, two = getattr(x, name), getattr(y, name)
        if (one == one[0]).all() and (two == one[0]).all():
            return None
        sign = 1.0 if one.mean() >= two.mean() else -1.0
        return lambda calls: np.asarray(sign * getattr(calls, name))

    return fit


def fit_linear(x: Features, y: Features) -> Score | None:
    """Linear discriminant, $s(o) = (m_x - m_y)^T (S + r I)^{-1} o$ with the pooled covariance S of k coordinates.

    Only the diagonal of S is used if there are fewer than four calls for each coordinate.
    """
    gap = x.coordinates.mean(0) - y.coordinates.mean(0)
    spread = (x.coordinates.var(0) + y.coordinates.var(0)) / 2
    ridge = 1e-6 * spread.mean() + 1e-12 * (gap**2).mean() + 1e-30
    if len(x) >= 4 * len(gap):
        covariance = (np.cov(x.coordinates.T, bias=True) + np.cov(y.coordinates.T, bias=True)) / 2
        weights = np.linalg.lstsq(np.atleast_2d(covariance) + ridge * np.eye(len(gap)), gap, rcond=None)[0]
    else:
        weights = gap / (spread + ridge)
    weights = weights / max(float(np.linalg.norm(weights)), 1e-300)
    return (lambda calls: np.asarray(calls.coordinates @ weights)) if np.isfinite(weights).all() else None


def fit_quadratic(x: Features, y: Features) -> Score | None:
    """Quadratic discriminant with diagonal covariances: the log ratio of two Gaussian densities for each coordinate."""
    (mx, vx), (my, vy) = ((side.coordinates.mean(0), side.coordinates.var(0)) for side in (x, y))
    floor = 1e-12 * (vx.mean() + vy.mean()) + 1e-300
    vx, vy = vx + floor, vy + floor

    def score(calls: Features) -> Reals:
        at = calls.coordinates
        ratio = ((at - my) ** 2 / vy - (at - mx) ** 2 / vx + np.log(vy / vx)) / 2
        return np.asarray(np.clip(ratio, -1e6, 1e6).sum(1))

    return score


def fit_laplace(x: Features, y: Features) -> Score | None:
    """Log ratio of two Laplace densities for each coordinate: $sum_i (|o_i - m_{y,i}| - |o_i - m_{x,i}|) / b_i$."""
    mx, my = np.median(x.coordinates, axis=0), np.median(y.coordinates, axis=0)
    b = (np.abs(x.coordinates - mx).mean(0) + np.abs(y.coordinates - my).mean(0)) / 2
    b = b + 1e-6 * b.mean() + 1e-300

    def score(calls: Features) -> Reals:
        at = calls.coordinates
        return np.asarray(np.clip((np.abs(at - my) - np.abs(at - mx)) / b, -1e6, 1e6).sum(1))

    return score


def fit_best_coordinate(x: Features, y: Features) -> Score | None:
    """The coordinate with the largest difference of means over its deviation."""
    gap = x.coordinates.mean(0) - y.coordinates.mean(0)
    deviation = np.sqrt((x.coordinates.var(0) + y.coordinates.var(0)) / 2)
    best = int(np.argmax(np.abs(gap) / (deviation + 1e-12 * np.abs(gap).max() + 1e-300)))
    sign = 1.0 if gap[best] >= 0 else -1.0
    return lambda calls: np.asarray(sign * calls.coordinates[:, best])


def fit_outside(_: Features, y: Features) -> Score | None:
    """Number of coordinates outside the range that y showed."""
    low, high = y.coordinates.min(0), y.coordinates.max(0)
    return lambda calls: np.asarray(((calls.coordinates < low) | (calls.coordinates > high)).sum(1), float)


def fit_most_frequent(x: Features, _: Features) -> Score | None:
    """Whether the outcome is the one that came most often under x: continuous noise never repeats."""
    values, counts = count_values(x.digest)
    if counts[0] < 2:
        return None
    return lambda calls: np.asarray(calls.digest == values[0], float)


def fit_least_frequent(_: Features, y: Features) -> Score | None:
    """Whether the outcome is not the one that came most often under y."""
    values, counts = count_values(y.digest)
    if counts[0] < 2:
        return None
    return lambda calls: np.asarray(calls.digest != values[0], float)


FITS: Mapping[str, Fit] = {
    "along x - y": _of_feature("along"),
    "along sign(x - y)": _of_feature("signs"),
    "linear discriminant": fit_linear,
    "quadratic discriminant": fit_quadratic,
    "ratio of Laplace densities": fit_laplace,
    "best coordinate": fit_best_coordinate,
    "exact copies of x": _of_feature("copies"),
    "zeros": _of_feature("zeros"),
    "length": _of_feature("length"),
    "largest value": _of_feature("peak"),
    "outside the range of y": fit_outside,
    "most frequent outcome of x": fit_most_frequent,
    "not the most frequent outcome of y": fit_least_frequent,
}
