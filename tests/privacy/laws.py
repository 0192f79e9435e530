"""Noise laws and Rényi divergences as plain sums, for comparison: nothing here comes from the package."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Reals = NDArray[np.float64]


def gaussian_log_pmf(sigma: float, reach: int) -> Reals:
    """log P[y] for y in -reach ... reach of the discrete Gaussian."""
    y = np.arange(-reach, reach + 1)
    logs = -(y**2) / (2 * sigma**2)
    return logs - math.log(math.fsum(np.exp(logs)))


def skellam_log_pmf(mu: float, reach: int) -> Reals:
    """The same for the difference of two Poisson variables of rate mu / 2."""
    return stats.skellam.logpmf(np.arange(-reach, reach + 1), mu / 2, mu / 2)


def log_convolved(log_pmf: Reals, times: int) -> Reals:
    """The law of the sum of so many independent draws, on as many values: by logarithms, so that the tails keep their digits.

    What lies further out than the input's ends is left out.
    """
    total, size, reach = log_pmf, len(log_pmf), len(log_pmf) // 2
    for _ in range(times - 1):
        padded = np.pad(total, reach, constant_values=-np.inf)
        total = np.array([np.logaddexp.reduce(padded[i : i + size] + log_pmf[::-1]) for i in range(size)])
    return total


def renyi(log_pmf: Reals, shift: int, order: float) -> float:
    """Divergence of order a between the law moved by ``shift`` and the law: log(sum p^a q^(1 - a)) / (a - 1)."""
    p, q = log_pmf[: len(log_pmf) - shift], log_pmf[shift:]
    some = np.isfinite(p) & np.isfinite(q)
    logs = order * p[some] + (1 - order) * q[some]
    top = logs.max()
    assert max(logs[0], logs[-1]) < top - 40, "the sum is cut off where it still counts"
    return (top + math.log(np.exp(logs - top).sum())) / (order - 1)


def chi_square(draws: NDArray[np.int64], pmf: Reals, least: float = 20) -> float:
    """p-value of Pearson's test of draws against a law on -reach ... reach; cells that expect few draws go together."""
    reach = len(pmf) // 2
    observed = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(pmf)).astype(float)
    expected = pmf * len(draws)
    likely = expected >= least
    if not likely.all():
        observed = np.append(observed[likely], observed[~likely].sum())
        expected = np.append(expected[likely], len(draws) - expected[likely].sum())
    if expected[-1] < 1:  # the rest
        assert observed[-1] <= 20
        observed, expected = observed[:-1], expected[:-1]
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))
