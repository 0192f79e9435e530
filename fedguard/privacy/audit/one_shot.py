"""An estimate of epsilon from canary clients of one training: two Gaussians fitted to their scores.

    P = N(m1, s1^2) of canaries that were in,  Q = N(m0, s0^2) of canaries that were not
    delta(epsilon) = max over both orders of  integral max(0, p - e^epsilon q)

An estimate, not a bound: it assumes the fitted shape even in tails that no canary has reached, and has no confidence.

Source: Andrew et al. 2023, "One-shot empirical privacy estimation for federated learning" (ICLR 2024).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from fedguard.privacy.audit.contract import Bound, Scores


def one_shot(scores: Scores, delta: float, _confidence: float = 0.95) -> Bound:
    """An estimate of epsilon at ``delta``, which has no confidence."""
    inside, outside = scores.inside, scores.outside
    return Bound(
        method="one_shot",
        epsilon=between_gaussians(inside.mean(), inside.std(ddof=1), outside.mean(), outside.std(ddof=1), delta),
        delta=delta,
        kind="estimate",
        confidence=None,
        assumes="scores are Gaussian, far out in the tails too",
    )


def between_gaussians(m1: float, s1: float, m0: float, s0: float, delta: float) -> float:
    """Epsilon at ``delta`` between N(m1, s1^2) and N(m0, s0^2), the larger of both orders; infinite for no spread."""
    if min(s0, s1) <= 0:
        return float("inf")
    p, q = norm(m1, s1), norm(m0, s0)
    low = min(m0 - 12 * s0, m1 - 12 * s1)
    high = max(m0 + 12 * s0, m1 + 12 * s1)
    grid = np.linspace(low, high, 40_001)
    log_p, log_q, step = p.logpdf(grid), q.logpdf(grid), grid[1] - grid[0]

    def excess(epsilon: float) -> float:
        orders = ((log_p, log_q), (log_q, log_p))
        # p - e^epsilon q as p (1 - exp(epsilon + log q - log p)): e^epsilon alone would overflow.
        return max(float((np.exp(a) * -np.expm1(np.minimum(0.0, epsilon + b - a))).sum() * step) for a, b in orders)

    if excess(0.0) <= delta:
        return 0.0
    most = 1.0
    while excess(most) > delta:
        most *= 2
    return float(brentq(lambda epsilon: excess(epsilon) - delta, 0.0, most, xtol=1e-6))
