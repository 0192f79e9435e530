"""Skellam noise: the difference of two Poisson variables, closed under addition.

    Sk(mu) = Poisson(mu / 2) - Poisson(mu / 2),      E = 0,  Var = mu,      Sk(a) + Sk(b) = Sk(a + b)

Source: Agarwal, Kairouz and Liu 2021, "The Skellam mechanism for differentially private federated learning" (NeurIPS).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedguard.privacy.mechanisms.base import Mechanism
from fedguard.privacy.mechanisms.sampler import Integers, Reals, sample
from fedguard.secagg.entropy import Entropy


@dataclass(frozen=True, kw_only=True)
class Skellam(Mechanism):
    """Every client adds Sk(sigma^2), so that k of them add Sk(k sigma^2)."""

    name: ClassVar[str] = "skellam"
    source: ClassVar[str] = "Agarwal, Kairouz and Liu, NeurIPS 2021"
    smallest: ClassVar[float] = 2.0**-10

    def sample(self, count: int, entropy: Entropy) -> Integers:
        """int64 ``[count]``: exact in law, for the Poisson rate that float64 makes of ``sigma^2 / 2``."""
        poisson = PoissonLaw(self.sigma * self.sigma / 2)
        return sample(poisson, count, entropy) - sample(poisson, count, entropy)

    def rdp(self, orders: Reals, *, sensitivity_l1: float, sensitivity_l2: float, contributors: int, dim: int) -> Reals:
        """Theorem 3.5 and its form for vectors, Corollary 3.6: for whole orders a > 1 and mu = k sigma^2,

            a D2^2 / (2 mu) + min{((2a - 1) D2^2 + 6 D1) / (4 mu^2), 3 D1 / (2 mu)}

        Other orders are rounded up: Rényi divergence grows with the order.
        """
        mu = max(contributors, 0) * self.sigma**2
        if mu == 0:
            return np.full(orders.shape, np.inf)
        a, squared = np.ceil(orders), sensitivity_l2**2
        surplus = np.minimum(((2 * a - 1) * squared + 6 * sensitivity_l1) / (4 * mu**2), 3 * sensitivity_l1 / (2 * mu))
        bound: Reals = a * squared / (2 * mu) + surplus
        return bound

    def noise_tail(self, clients: int, beta: float) -> int:
        """``sqrt(2 mu L) + L / 3``, L = log(2 / beta): Bernstein, for the cumulants ``mu (cosh t - 1)`` of Sk(mu) are at most
        ``mu t^2 / (2 (1 - t / 3))``."""
        return self._tail(clients, beta, linear=1 / 3)


#: Coefficients of v^2, v^4 ... in 2 (atanh(v) / v - 1).
_ATANH = [2 / (2 * j + 1) for j in range(1, 13)]
#: log(x!) less Stirling's approximation, for x = 0 (unused) to 15; beyond, five terms of its series do.
_STIRLING = np.array(
    [0.0] + [math.lgamma(x + 1) - (x + 0.5) * math.log(x) + x - math.log(2 * math.pi) / 2 for x in range(1, 16)]
)


@dataclass(frozen=True)
class PoissonLaw:
    """The law of a Poisson variable less its mode, ``f(y) = P[mode + y] / P[mode]``; any positive rate."""

    rate: float

    @cached_property
    def mode(self) -> int:
        """The most likely value (the larger of two)."""
        return math.floor(self.rate)

    def log_mass(self, y: Integers) -> Reals:
        """``log P[mode + y] - log P[mode]`` by Loader's saddle-point expansion, which cancels nothing."""
        x = np.maximum(y + self.mode, 0).astype(np.float64)
        return np.where(y < -self.mode, -np.inf, self._log_probability(x) - self._log_at_mode)

    def mass(self, y: int, digits: int) -> Decimal:
        """``prod_{i=1}^{y} rate / (mode + i)`` or ``prod_{i=0}^{-y-1} (mode - i) / rate``."""
        with localcontext() as context:
            context.prec = digits + 20  # at most 10^16 factors
            # Decimal takes the float64 rate without rounding, so exact and fast arithmetic speak of the same law.
            rate, product = Decimal(self.rate), Decimal(1)
            for i in range(1, y + 1):
                product *= rate / (self.mode + i)
            for i in range(-y):
                product *= max(self.mode - i, 0) / rate
            return product

    @cached_property
    def _log_at_mode(self) -> float:
        return float(self._log_probability(np.array([float(self.mode)]))[0])

    def _log_probability(self, x: Reals) -> Reals:
        """``-D(x, rate) - stirling(x) - log(2 pi x) / 2``, and ``-rate`` at 0 (Loader 2000)."""
        some = np.maximum(x, 1.0)
        inverse = 1 / some
        square = inverse * inverse
        series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))
        small = np.minimum(some, len(_STIRLING) - 1).astype(np.intp)
        stirling = np.where(some < len(_STIRLING), _STIRLING[small], series)
        # log P[x] is the difference of terms of about x log x: summed directly, they would lose all digits at large rates.
        value = -self._deviance(some) - stirling - np.log(2 * math.pi * some) / 2
        return np.where(x == 0, -self.rate, value)

    def _deviance(self, x: Reals) -> Reals:
        """``D(x, r) = x log(x / r) + r - x``; near r as ``(x - r) v + x v sum_j 2 v^2j / (2j + 1)``, v = (x - r) / (x + r)."""
        away = x - self.rate
        v = away / (x + self.rate)
        square = v * v
        series = np.zeros_like(v)
        for coefficient in reversed(_ATANH):
            series = (series + coefficient) * square
        # Near the rate both terms of D cancel; farther away the series would need too many coefficients.
        near = away * v + x * v * series
        return np.where(np.abs(v) < 0.2, near, x * np.log(x / self.rate) - away)
