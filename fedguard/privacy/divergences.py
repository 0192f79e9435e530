"""Rényi divergences of the sampled Gaussian by opacus, each order computed once for all deltas."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from fedguard.privacy.accounting import Reals


def divergences(q: float, s: float, orders: Iterable[float]) -> Reals:
    """`compute_rdp` of opacus for one step: float64, one for each order.

    Args:
        q: sample rate.
        s: noise multiplier.
        orders: above 1 and finite.

    Raises:
        ValueError, OverflowError: opacus' arithmetic fails.
    """
    return np.array([_divergence(q, s, float(order)) for order in orders])


# By single order, since calls share orders but seldom ask for the same set of them
@lru_cache(maxsize=2**16)
def _divergence(q: float, s: float, order: float) -> float:
    from opacus.accountants.analysis.rdp import compute_rdp

    return float(compute_rdp(q=q, noise_multiplier=s, steps=1, orders=order))
