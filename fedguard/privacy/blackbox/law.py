"""Lower bounds on epsilon if the noise has the law that it seems to have: what they show is not proven.

    Gaussian   mu >= (gap - z se) / (sd (1 + z / sqrt(4 n)))     along one score, epsilon(mu) and epsilon(mu sqrt(R))
    Laplace    epsilon >= (L1 gap - z se) / (b (1 + z / sqrt(n k)))     for independent coordinates; R times over R releases

A law that is not refuted is not proven. Both laws are tested with n >= 1,000 calls, by the distance of Kolmogorov and Smirnov
with estimated parameters (Lilliefors), for coordinates and for the score, and the deviation must be the same under both inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fedguard.contracts.audit import Reals
from fedguard.privacy.audit.gaussian import epsilon_of
from fedguard.privacy.blackbox.claim import Law
from fedguard.privacy.blackbox.features import Features

#: Fewest calls on which a law is tested.
FEWEST = 1000
#: sqrt(n) times the largest distance that passes at 0.1 %, with location and scale estimated; by simulation for n >= 1,000.
CRITICAL = {"gaussian": 1.24, "laplace": 1.33}
#: Most coordinates that are tested, and the largest ratio of deviations under both inputs, in standard errors.
COORDINATES, UNEQUAL = 8, 4.0


@dataclass(frozen=True)
class ShownBound:
    """A lower bound on epsilon if the noise has this law; for one release and for R."""

    law: Law
    epsilon: float
    over_rounds: float
    rounds: int


def lower_bound_by_law(
    x: Features, y: Features, *, delta: float, over: float, rounds: int, risk: float
) -> ShownBound | None:
    """The bound by the law of the noise; None if it seems to have neither law, or there are too few calls.

    Args:
        x, y: calls with each input that fitted nothing.
        delta, over: delta for one release, and for ``rounds`` releases.
    """
    law = seeming_law(x, y)
    if law is None:
        return None
    z, n = float(ndtri(1 - risk / 2)), len(x)
    if law == "laplace":
        b = (1 + z / math.sqrt(n * COORDINATES)) * _laplace_scale(x, y)
        one = max(0.0, _gap(x.signs, y.signs, z) / b)
        return ShownBound(law, one, rounds * one, rounds)
    deviation = math.sqrt((x.along.var() + y.along.var()) / 2) * (1 + z / math.sqrt(4 * n))
    mu = max(0.0, _gap(x.along, y.along, z) / deviation)
    return ShownBound(law, epsilon_of(mu, delta), epsilon_of(mu * math.sqrt(rounds), over), rounds)


def seeming_law(x: Features, y: Features) -> Law | None:
    """The law that neither the coordinates nor the score along x - y contradict; Gaussian if they contradict neither."""
    if len(x) < FEWEST or len(y) < FEWEST or not _equal_spread(x, y):
        return None
    columns = _noisy_columns(x, y)
    if not len(columns):
        return None
    if all(_fits(side.along, "gaussian") for side in (x, y)) and _coordinates_fit(x, y, columns, "gaussian"):
        return "gaussian"
    return "laplace" if _coordinates_fit(x, y, columns, "laplace") else None


def _gap(one: Reals, two: Reals, z: float) -> float:
    """Lower bound on the difference of two means, by the normal approximation."""
    error = math.sqrt(one.var() / len(one) + two.var() / len(two))
    return abs(float(one.mean() - two.mean())) - z * error


def _laplace_scale(x: Features, y: Features) -> float:
    """b, the mean absolute deviation from the median."""
    columns = _noisy_columns(x, y)
    parts = [side.coordinates[:, columns] for side in (x, y)]
    return float(np.mean([np.abs(part - np.median(part, axis=0)).mean() for part in parts]))


def _noisy_columns(x: Features, y: Features) -> NDArray[np.int64]:
    varied = (x.coordinates.std(0) > 0) & (y.coordinates.std(0) > 0)
    return np.flatnonzero(varied)[:COORDINATES]


def _coordinates_fit(x: Features, y: Features, columns: NDArray[np.int64], law: Law) -> bool:
    return all(_fits(side.coordinates[:, column], law) for side in (x, y) for column in columns)


def _equal_spread(x: Features, y: Features) -> bool:
    """Whether the deviations along x - y are equal up to chance, with heavy tails allowed for."""
    one, two = x.along.std(), y.along.std()
    if not (one > 0 and two > 0):
        return False
    error = math.sqrt(2.5 / len(x) + 2.5 / len(y))  # of the logarithm of a Laplace variable's variance, halved
    return abs(math.log(one / two)) <= UNEQUAL * error


def _fits(values: Reals, law: Law) -> bool:
    n = len(values)
    sorted_values = np.sort(values)
    if law == "gaussian":
        expected = ndtr((sorted_values - values.mean()) / values.std())
    else:
        center = np.median(values)
        u = (sorted_values - center) / np.abs(values - center).mean()
        expected = np.where(u < 0, np.exp(np.minimum(u, 0)) / 2, 1 - np.exp(-np.maximum(u, 0)) / 2)
    steps = np.arange(n) / n
    distance = max(float((expected - steps).max()), float((steps + 1 / n - expected).max()))
    return bool(math.sqrt(n) * distance <= CRITICAL[law])
