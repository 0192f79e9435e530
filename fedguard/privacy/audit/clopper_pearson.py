"""Exact bounds on error rates, and the bounds on epsilon that follow for any mechanism.

    epsilon >= log((1 - delta - FNR) / FPR)   and   log((1 - delta - FPR) / FNR)

with Clopper-Pearson upper bounds for both rates. Several thresholds are tried, each at its share of the error (Bonferroni).
A threshold is a score of a canary that was out, taken by its rank: the false positive rate above the k-th largest of n is
Beta(k, n - k + 1) distributed, which is the Clopper-Pearson bound for k - 1 of n, so that looking at the scores costs nothing.

Weak: n canaries show no rate below about 6 / n, so the bound stays below log(n / 6) even for code without any noise.

Source: Jagielski et al. 2020 (NeurIPS); Nasr et al. 2023 (USENIX Security); the relation of Kairouz et al. 2015 (ICML).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from fedguard.contracts.audit import Reals
from fedguard.privacy.audit.contract import Bound, Scores


def upper(errors: NDArray[np.int64] | int, trials: int, risk: float) -> Reals:
    """Upper bound on a rate, exceeded with probability at most ``risk``, for ``errors`` in ``trials`` independent trials."""
    count = np.asarray(errors)
    found: Reals = np.where(count >= trials, 1.0, beta.ppf(1 - risk, count + 1, np.maximum(trials - count, 1)))
    return found


def clopper_pearson(scores: Scores, delta: float, confidence: float = 0.95) -> Bound:
    """A lower bound on epsilon at ``delta``, for any mechanism."""
    outside, inside = np.sort(scores.outside)[::-1], np.sort(scores.inside)
    # Ranks are fixed before scores are seen, and each gets an equal share of the risk for either rate.
    ranks = np.unique(np.geomspace(1, len(outside), 10).astype(int))
    thresholds = outside[ranks - 1]
    risk = (1 - confidence) / (2 * len(ranks))
    # Ties with the threshold count as out: no more than k - 1 scores are above it, and fnr counts misses the same way.
    fpr = upper(ranks - 1, len(outside), risk)
    fnr = upper(np.searchsorted(inside, thresholds, side="right"), len(inside), risk)
    ratios = np.concatenate([(1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr])
    return Bound(
        method="clopper_pearson",
        epsilon=float(np.log(max(1.0, ratios.max()))),
        delta=delta,
        kind="bound",
        confidence=confidence,
    )
