"""Gaussian differential privacy: no test tells the data sets apart better than N(0, 1) from N(mu, 1).

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu)
    mu = Phi^-1(1 - FPR) - Phi^-1(FNR)        of the best test at any threshold

Source: Dong, Roth and Su 2022 (JRSS B), Corollary 2.13.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from fedguard.contracts.audit import Reals

#: The assumption of each bound that turns mu into epsilon.
SHAPE = "the trade-off curve has the shape of a Gaussian mechanism's"


def delta_of(mu: float, epsilon: float) -> float:
    """The least delta at which a mu-GDP mechanism has ``epsilon``."""
    # e^epsilon overflows where Phi underflows, so their product is taken in logarithms.
    return float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon that a mu-GDP mechanism has at ``delta``."""
    if mu <= 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    if not math.isfinite(mu):
        return math.inf
    most = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # Phi(-t) <= exp(-t^2 / 2)
    return float(brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, most, xtol=1e-9))


def mu_of(fpr: Reals | float, fnr: Reals | float) -> Reals:
    """The mu at which the best test has these rates; negative where the test is worse than guessing."""
    found: Reals = -ndtri(np.asarray(fpr, float)) - ndtri(np.asarray(fnr, float))
    return found
