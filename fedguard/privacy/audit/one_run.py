"""An audit in one run: each canary is in by a fair coin, and the auditor guesses the coins, or abstains.

Of r guesses on m canaries at least v are right with probability at most

    P[W >= v] + 2 m delta max_{1 <= i <= v} P[v > W >= v - i] / i,        W ~ Binomial(r, e^epsilon / (1 + e^epsilon))

if the mechanism is (epsilon, delta)-DP. Weak: r right guesses prove no more than log(r), so a large epsilon needs many.

Source: Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run" (NeurIPS), Theorem 5.2.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from fedguard.privacy.audit.contract import Bound, Scores

#: Shares of the canaries on which the auditor guesses; each is tried at its share of the error.
SHARES = (0.02, 0.1, 0.3, 1.0)


def one_run(scores: Scores, delta: float, confidence: float = 0.95) -> Bound:
    """A lower bound on epsilon at ``delta``, for any mechanism."""
    risk, canaries = (1 - confidence) / len(SHARES), len(scores.values)
    best = 0.0
    for share in SHARES:
        guesses, right = count_guesses(scores, share)
        low, high = 0.0, 50.0
        if chance(right, guesses, canaries, low, delta) >= risk:
            continue
        while high - low > 1e-4:
            middle = (low + high) / 2
            refuted = chance(right, guesses, canaries, middle, delta) < risk
            low, high = (middle, high) if refuted else (low, middle)
        best = max(best, low)
    return Bound(method="one_run", epsilon=best, delta=delta, kind="bound", confidence=confidence)


def count_guesses(scores: Scores, share: float) -> tuple[int, int]:
    """Numbers of guesses and of right guesses: the highest scores are guessed as in, equally many of the lowest as out."""
    half = max(1, round(share * len(scores.values) / 2))
    # Ties by number, which knows nothing of the coins.
    order = np.argsort(scores.values, kind="stable")
    lowest, highest = order[:half], order[len(order) - half :]
    return 2 * half, int((~scores.included[lowest]).sum() + scores.included[highest].sum())


def chance(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Bound on the probability of at least ``right`` right guesses under (epsilon, delta)-DP."""
    law = guesses, expit(epsilon)
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), *law))  # P[v > W >= v - i] for i = 1 ... v
    steepest = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, float(binom.sf(right - 1, *law)) + 2 * canaries * delta * steepest)
