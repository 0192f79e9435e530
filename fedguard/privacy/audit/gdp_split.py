"""The default audit: some canaries choose a threshold, the others bound its error rates, which give mu and epsilon.

    mu >= Phi^-1(1 - FPR) - Phi^-1(FNR)       with Clopper-Pearson upper bounds for both rates, then epsilon(mu, delta)

Sampling bends the trade-off curve of a mechanism, and then mu proves nothing. The two rates do: they refute each (e, d) with

    FPR exp(e) + FNR < 1 - d       or the same with the rates exchanged

and the claimed mechanism has an e for every d, so that one is enough.

It is invalid to choose the threshold by the canaries that judge it: the best of many thresholds is good by luck.

Source: Nasr et al. 2023, "Tight auditing of differentially private machine learning" (USENIX Security); Dong et al. 2022.
"""

from __future__ import annotations

import numpy as np

from fedguard.contracts.audit import Reals
from fedguard.privacy.audit.clopper_pearson import upper
from fedguard.privacy.audit.contract import Bound, Scores
from fedguard.privacy.audit.gaussian import SHAPE, epsilon_of, mu_of

#: Every fifth canary chooses: the best threshold is a flat optimum, and the rates need all the canaries they can get.
CHOOSING = 5


def gdp_split(scores: Scores, delta: float, confidence: float = 0.95) -> Bound:
    """A lower bound on mu, and on epsilon at ``delta`` for a mechanism of that shape."""
    (near, inside), (far, outside) = _split(scores.inside), _split(scores.outside)
    risk, choosing = (1 - confidence) / 2, np.concatenate([near, far])
    # Chosen by bounds: by plain rates a threshold without errors has an infinite mu, however few canaries show it.
    threshold = choosing[np.argmax(mu_bounds(near, far, choosing, risk))]
    fpr, fnr = rate_bounds(inside, outside, np.array([threshold]), risk)
    mu = max(0.0, float(mu_of(fpr, fnr)[0]))
    return Bound(
        method="gdp_split",
        epsilon=epsilon_of(mu, delta),
        delta=delta,
        kind="bound",
        confidence=confidence,
        mu=mu,
        rates=(float(fpr[0]), float(fnr[0])),
        assumes=SHAPE,
    )


def mu_bounds(inside: Reals, outside: Reals, thresholds: Reals, risk: float) -> Reals:
    """Lower bounds on mu, float64 ``[k]``, for each threshold by itself; see `rate_bounds`."""
    return mu_of(*rate_bounds(inside, outside, thresholds, risk))


def rate_bounds(inside: Reals, outside: Reals, thresholds: Reals, risk: float) -> tuple[Reals, Reals]:
    """Upper bounds on FPR and FNR, float64 ``[k]`` each, of the test "in if the score is above".

    Args:
        risk: probability that a rate exceeds its bound, for each of the two.
    """
    missed = np.searchsorted(np.sort(inside), thresholds, side="right")
    alarms = len(outside) - np.searchsorted(np.sort(outside), thresholds, side="right")
    return upper(alarms, len(outside), risk), upper(missed, len(inside), risk)


def _split(values: Reals) -> tuple[Reals, Reals]:
    """Canaries that choose and canaries that judge: they are exchangeable, so their order may decide."""
    choose = np.arange(len(values)) % CHOOSING == 0
    return values[choose], values[~choose]
