"""Correlated noise: the noise of one round is partly canceled in the next rounds.

The models that a training shows are prefix sums of its aggregates. With the lower triangular matrix A of ones and a
factorization A = B C, adding C^-1 Z to the aggregates of all rounds, Z of independent rows, is B (C X + Z) for the models:
a Gaussian release of C X, and B is post-processing. The banded square root takes the Toeplitz matrix C with

    c_j = binom(2j, j) / 4^j  for j < b, and 0 beyond,

the first b coefficients of (1 - x)^(-1/2), the square root of 1 / (1 - x), which generates A. Row t of C^-1 Z comes from

    z~_t = z_t - sum_{0 < j < b} c_j z~_{t-j}.

b = 1 is independent noise, and b = rounds the whole square root, DP-FTRL without restarts. The noise is Gaussian, so that
the rounds may be chosen adaptively (Denisov et al., NeurIPS 2022).

Source: Kalinin and Lampert, Banded square root matrix factorization for differentially private model training, NeurIPS 2024;
Choquette-Choo et al., (Amplified) banded matrix factorization, NeurIPS 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor


def square_root(bands: int) -> tuple[float, ...]:
    """``c_0 ... c_{bands - 1}``, by ``c_j = c_{j-1} (2j - 1) / 2j``."""
    # By recurrence, since 4^j alone overflows float64 from j = 512 on.
    coefficients = [1.0]
    for j in range(1, bands):
        coefficients.append(coefficients[-1] * (2 * j - 1) / (2 * j))
    return tuple(coefficients)


def sensitivity(coefficients: Sequence[float], participations: int) -> float:
    """Sensitivity of ``C X`` to one client, in clips: ``sqrt(k sum_j c_j^2)``.

    A client that sends x_t in the rounds t of a set P adds sum_{t in P} C[:, t] x_t^T. Column t of C has its b non-zero
    entries in rows t ... t + b - 1. Where any two rounds of P are at least b apart no two of these columns share a row, so
    they are orthogonal, and the squared Frobenius norm is sum_{t in P} |C[:, t]|^2 |x_t|^2 <= k sum_j c_j^2 for |x_t| <= 1 and
    |P| <= k. (Columns that reach beyond the last round are shorter.)

    Args:
        coefficients: c_0 ... c_{b-1}.
        participations: k, the most rounds in which a client takes part, any two of them at least b apart.
    """
    # The caller guarantees the separation: the noise for clients refuses more bands than rounds between two participations.
    return math.sqrt(participations * math.fsum(c * c for c in coefficients))


def correlate_noise(fresh: Tensor, past: Sequence[Tensor], coefficients: Sequence[float]) -> Tensor:
    """Row t of ``C^-1 Z``, float32 ``[d]``.

    Args:
        fresh: z_t, float32 ``[d]``.
        past: rows t - 1, t - 2 ... of ``C^-1 Z``, at most b - 1; fewer in the first rounds.
    """
    # z~ and not z is subtracted: this is the back substitution of C z~ = z, so that C^-1 is never built.
    noise = fresh.clone()
    # Not strict: the first b - 1 rounds have fewer rows behind them.
    for coefficient, row in zip(coefficients[1:], past, strict=False):
        noise.sub_(row, alpha=coefficient)
    return noise
