"""Rényi divergences of the sampled Gaussian: the series of Mironov, Talwar and Zhang, each order computed one time.

    D(a) = log(A) / (a - 1),      A = E_{x ~ N(0, s^2)} [(1 - q + q exp((2 x - 1) / (2 s^2)))^a]

For whole orders A is a sum by the binomial theorem; for broken ones it is two series, of the integrals below and above the x
where both parts of the mixture are alike. They are added up in the order in which opacus does it, so that epsilons are the same
to the last bit; but their terms are computed many at a time.

Source: Mironov, Talwar and Zhang 2019, "Rényi differential privacy of the sampled Gaussian mechanism", section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.privacy.accounting import Reals

#: Of the series for broken orders, so many terms are computed at a time; most end within them.
TERMS = 64
#: They end with the first term whose logarithm is below this.
NEGLIGIBLE = -30


def divergences(q: float, s: float, orders: Iterable[float]) -> Reals:
    """For one step: float64, one for each order.

    Args:
        q: sample rate, above 0.
        s: noise multiplier, above 0.
        orders: above 1 and finite.

    Raises:
        ValueError, OverflowError: the arithmetic fails.
    """
    return np.array([_divergence(q, s, float(order)) for order in orders])


@lru_cache(maxsize=2**16)
def _divergence(q: float, s: float, order: float) -> float:
    if q == 1:
        return order / (2 * s**2)
    log_a = _whole(q, s, int(order)) if order.is_integer() else _broken(q, s, order)
    return log_a / (order - 1)


def _whole(q: float, s: float, order: int) -> float:
    """log of ``sum_i (a over i) q^i (1 - q)^(a - i) exp((i^2 - i) / (2 s^2))``."""
    i = np.arange(order + 1)
    terms = (
        _coefficients(order, 0, order + 1)[0]
        + i * math.log(q)
        + (order - i) * math.log(1 - q)
        + (i * i - i) / (2 * s**2)
    )
    total = -math.inf
    for term in terms.tolist():
        total = _log_sum(total, term)
    return total


def _broken(q: float, s: float, order: float) -> float:
    """log of the sum of both series, with the binomial coefficients of a broken order, which change their signs."""
    from scipy.special import log_ndtr

    middle = s**2 * math.log(1 / q - 1) + 0.5
    log_q, log_p, half = math.log(q), math.log(1 - q), math.log(0.5)

    def tail(x: NDArray[np.floating[Any]]) -> Reals:
        """log of half the complementary error function."""
        halved: Reals = half + (math.log(2) + log_ndtr(-x * 2**0.5))
        return halved

    below = above = -math.inf
    for first in count(0, TERMS):
        i = np.arange(first, first + TERMS)
        j = order - i
        logs, positive = _coefficients(order, first, first + TERMS)
        lower = logs + i * log_q + j * log_p + (i * i - i) / (2 * s**2) + tail((i - middle) / (math.sqrt(2) * s))
        upper = logs + j * log_q + i * log_p + (j * j - j) / (2 * s**2) + tail((middle - j) / (math.sqrt(2) * s))
        for adds, low, high in zip(positive, lower.tolist(), upper.tolist(), strict=True):
            add = _log_sum if adds else _log_difference
            below, above = add(below, low), add(above, high)
            if max(low, high) < NEGLIGIBLE:
                return _log_sum(below, above)
    raise AssertionError


@lru_cache(maxsize=1024)
def _coefficients(order: float, first: int, end: int) -> tuple[Reals, list[bool]]:
    """The logarithm of each ``|a over i|``, and whether it is above 0: the same for all rates and noises."""
    from scipy.special import binom

    found = binom(order, np.arange(first, end)).tolist()
    # Python's logarithms: numpy's may differ from them in the last bit
    return np.array([math.log(abs(one)) for one in found]), [one > 0 for one in found]


def _log_sum(x: float, y: float) -> float:
    """log(e^x + e^y)."""
    low, high = min(x, y), max(x, y)
    return high if low == -math.inf else math.log1p(math.exp(low - high)) + high


def _log_difference(x: float, y: float) -> float:
    """log(e^x - e^y).

    Raises:
        ValueError: y is larger.
    """
    if x < y:
        raise ValueError("the series does not converge: a partial sum is negative")
    if x == y:
        return -math.inf
    try:
        return math.log(math.expm1(x - y)) + y
    except OverflowError:
        return x
