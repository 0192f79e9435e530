"""Integer noise transformed to N(0, 1), if it has its claimed law.

For K of the distribution function F, and V uniform on (0, 1) and independent,

    F(K - 1) + V (F(K) - F(K - 1))        is uniform on (0, 1), exactly

and the normal quantile of that is N(0, 1). So all tests of Gaussian noise hold for integers as well.

Source: the randomized probability integral transform, Ferguson 1967.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm, skellam

from fedguard.contracts.audit import Integers, Reals

#: Beyond this standard deviation, in units of the grid, both laws are Gaussian to about 1e-5.
FINE = 100.0
#: Probabilities are kept away from 0 and 1, where float64 has no more digits.
EDGE = 1e-15


def to_normal(noise: Integers, mechanism: str, sigma: float, draw: np.random.Generator) -> Reals:
    """float64 ``[k]``: N(0, 1) where ``noise`` (int64 ``[k]``) has the mechanism's law.

    Args:
        mechanism: "skellam" with variance sigma^2, or "discrete_gaussian" with parameter sigma.
        sigma: in units of the grid.
        draw: of V.
    """
    # Without V the transform of integers has atoms, and every test of a continuous law would fail.
    v = draw.random(len(noise))
    if sigma > FINE:
        fine: Reals = (noise + v - 0.5) / sigma
        return fine
    span = np.arange(math.floor(-40 * sigma - 40), math.ceil(40 * sigma + 40) + 1)
    mass = (
        skellam.pmf(span, sigma**2 / 2, sigma**2 / 2) if mechanism == "skellam" else np.exp(-0.5 * (span / sigma) ** 2)
    )
    mass = mass / mass.sum()
    at = np.clip(noise, span[0], span[-1]) - span[0]
    # From the nearer end, where small numbers keep their digits.
    below, above = np.cumsum(mass) - mass, np.cumsum(mass[::-1])[::-1] - mass
    lower, upper = below[at] + v * mass[at], above[at] + (1 - v) * mass[at]
    found: Reals = np.where(lower < 0.5, norm.ppf(np.maximum(lower, EDGE)), norm.isf(np.maximum(upper, EDGE)))
    return found
