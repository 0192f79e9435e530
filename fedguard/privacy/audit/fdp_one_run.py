"""An audit in one run for Gaussian differential privacy, which uses the whole trade-off curve instead of one (epsilon, delta).

Let W of c guesses be right. For any w, f bounds the probability that the guess on one canary is right together with at least w
others, by the probability that the same guess is wrong. Averaged over the m canaries, with p_j = P[W = j],

    sum_{j > w} j p_j / m  <=  1 - f(sum_{j >= w} (c - j) p_j / m)

Starting from P[W >= v] = risk, this bounds every p_j from below. If the p_j then exceed 1 in all, v right guesses are less
likely than the risk.

Source: Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-differential privacy in one run".
"""

from __future__ import annotations

from scipy.special import ndtr, ndtri

from fedguard.privacy.audit.contract import Bound, Scores
from fedguard.privacy.audit.gaussian import SHAPE, epsilon_of
from fedguard.privacy.audit.one_run import count_guesses

#: Shares of the canaries on which the auditor guesses; each is tried at its share of the error.
SHARES = (0.1, 0.3, 1.0)


def fdp_one_run(scores: Scores, delta: float, confidence: float = 0.95) -> Bound:
    """A lower bound on mu, and on epsilon at ``delta`` for a mechanism of that shape."""
    risk, canaries = (1 - confidence) / len(SHARES), len(scores.values)
    best = 0.0
    for share in SHARES:
        guesses, right = count_guesses(scores, share)
        low, high = 0.0, 20.0
        if not refutes_gdp(right, guesses, canaries, low, risk):
            continue
        # A larger mu allows more right guesses, so refuted values are an interval from 0.
        while high - low > 1e-4:
            middle = (low + high) / 2
            low, high = (middle, high) if refutes_gdp(right, guesses, canaries, middle, risk) else (low, middle)
        best = max(best, low)
    return Bound(
        method="fdp_one_run",
        epsilon=epsilon_of(best, delta),
        delta=delta,
        kind="bound",
        confidence=confidence,
        mu=best,
        assumes=SHAPE,
    )


def refutes_gdp(right: int, guesses: int, canaries: int, mu: float, risk: float) -> bool:
    """Whether ``right`` right guesses have a probability below ``risk`` under mu-GDP.

    ``hit`` and ``wrong`` are sum_{j >= w} of j p_j / m and (c - j) p_j / m, from w = right down to 0; the inverse of 1 - f is
    Phi(Phi^-1(y) - mu).
    """
    hit, wrong = risk * right / canaries, risk * (guesses - right) / canaries
    whole = guesses / canaries
    for w in range(right - 1, -1, -1):
        least = max(wrong, float(ndtr(ndtri(min(hit, 1.0)) - mu)))
        hit += w / (guesses - w) * (least - wrong)
        wrong = least
        # Their sum is c / m times P[W >= w], so c / m at most; the margin is for rounding.
        if hit + wrong > whole * (1 + 1e-9):
            return True
    return False
