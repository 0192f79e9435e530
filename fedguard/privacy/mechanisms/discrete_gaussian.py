"""Discrete Gaussian noise, one share from each client.

    N_Z(sigma^2):  P[y] proportional to exp(-y^2 / (2 sigma^2)) on the integers

A sum of such variables is not a discrete Gaussian; tau below measures its distance from one.

Source: Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation" (ICML); Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy" (NeurIPS).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import ClassVar

import numpy as np

from fedguard.privacy.mechanisms.base import Mechanism
from fedguard.privacy.mechanisms.sampler import Integers, Reals, sample
from fedguard.secagg.entropy import Entropy


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(Mechanism):
    """Every client adds N_Z(sigma^2)."""

    name: ClassVar[str] = "discrete_gaussian"
    source: ClassVar[str] = "Kairouz, Liu and Steinke, ICML 2021"
    smallest: ClassVar[float] = 0.5

    def sample(self, count: int, entropy: Entropy) -> Integers:
        """int64 ``[count]``: exact in law."""
        return sample(GaussianLaw(self.sigma), count, entropy)

    def rdp(self, orders: Reals, *, sensitivity_l1: float, sensitivity_l2: float, contributors: int, dim: int) -> Reals:
        """Proposition 14: for sigma >= 1/2 and n clients, the smaller of

            a D2^2 / (2 n sigma^2) + tau_n d
            a / 2 (D2^2 / (n sigma^2) + 2 D1 tau_n / (sqrt(n) sigma) + tau_n^2 d)

            tau_n = 10 sum_{k=1}^{n-1} exp(-2 pi^2 sigma^2 k / (k + 1))

        Its third bound, ``a / 2 (D2 / (sqrt(n) sigma) + tau_n sqrt(d))^2``, follows from the second by ``D1 <= sqrt(d) D2``.
        Since the noise of more clients cannot hurt, the best bound for any n up to ``contributors`` is taken: where sigma
        is small, tau_n grows faster than the noise.
        """
        if contributors < 1:
            return np.full(orders.shape, np.inf)
        n = np.arange(1, contributors + 1)[:, None]
        steps = np.exp(-2 * (math.pi * self.sigma) ** 2 * n[:-1] / n[1:])
        tau = 10 * np.concatenate([np.zeros((1, 1)), np.cumsum(steps, axis=0)])
        squared = sensitivity_l2**2 / (n * self.sigma**2)
        cross = 2 * sensitivity_l1 * tau / (np.sqrt(n) * self.sigma)
        first = orders / 2 * squared + tau * dim
        second = orders / 2 * (squared + cross + tau**2 * dim)
        bound: Reals = np.minimum(first, second).min(axis=0)
        return bound

    def noise_tail(self, clients: int, beta: float) -> int:
        """``sqrt(2 n sigma^2 log(2 / beta))``: a discrete Gaussian is sub-Gaussian with variance sigma^2 (Canonne et al.)."""
        return self._tail(clients, beta, linear=0.0)


@dataclass(frozen=True)
class GaussianLaw:
    """The law ``f(y) = exp(-y^2 / (2 sigma^2))``."""

    sigma: float

    def log_mass(self, y: Integers) -> Reals:
        """``-(y / sigma)^2 / 2``."""
        scaled: Reals = y / self.sigma
        return -0.5 * scaled * scaled

    def mass(self, y: int, digits: int) -> Decimal:
        """``f(y)`` with a relative error below 10^-digits."""
        with localcontext() as context:
            context.prec = digits + 30
            return (-((y / Decimal(self.sigma)) ** 2) / 2).exp()
