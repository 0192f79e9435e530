"""Lower bounds on epsilon from n calls with each of two neighboring inputs, whatever the law of the noise.

    one release   epsilon >= log((1 - delta - FNR) / FPR)    and the same with x and y exchanged
    R releases    epsilon >= max_k log((P[Bin(R, 1 - b) >= k] - delta) / P[Bin(R, a) >= k])    with FPR <= a, FNR <= b

The second line holds if the noise of each release is fresh: of R releases with the same input, the number that a test calls "x"
is binomial. It is not limited by log n, and refutes single releases too if a claim composes.

Scores are fitted on the first eighth of the calls, thresholds are chosen on the next quarter, and error rates are bounded on
the rest, by Clopper and Pearson. (Fitted and chosen on the same calls, a test that fits noise looks best.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from fedguard.contracts.audit import Reals
from fedguard.privacy.audit.clopper_pearson import upper
from fedguard.privacy.blackbox.features import Features
from fedguard.privacy.blackbox.scores import Score, fit_scores

#: Shares of the calls for fitting and for fitting and choosing together.
FITTED, CHOSEN = 1 / 8, 3 / 8
#: Most thresholds of a score that are tried.
THRESHOLDS = 100


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on epsilon for any law.

    Attributes:
        epsilon: at ``delta``, for ``rounds`` releases.
        score: the test.
        fpr, fnr: upper bounds on its error rates.
    """

    epsilon: float
    delta: float
    rounds: int
    score: str = ""
    fpr: float = 1.0
    fnr: float = 1.0


def for_one(fpr: Reals, fnr: Reals, delta: float) -> Reals:
    """$log((1 - delta - FNR) / FPR)$, or 0 if it is negative."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(np.maximum(1 - delta - fnr, 0) / fpr)
    return np.asarray(np.maximum(np.nan_to_num(found, nan=0.0, neginf=0.0), 0.0))


def for_rounds(fpr: Reals, fnr: Reals, rounds: int, delta: float) -> Reals:
    """The bounds ``[t]`` over ``rounds`` releases for tests with error rates ``[t]`` of one release of at most these."""
    k = np.arange(rounds + 1)
    fpr, fnr = np.asarray(fpr, float)[..., None], np.asarray(fnr, float)[..., None]
    found = np.zeros(fpr.shape[:-1])
    # At least k say "x", and at most k say so: the second with x and y exchanged.
    for seen, other in (
        (binom.logsf(k - 1, rounds, 1 - fnr), binom.logsf(k - 1, rounds, fpr)),
        (binom.logcdf(k, rounds, fpr), binom.logcdf(k, rounds, 1 - fnr)),
    ):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.log(np.maximum(np.exp(seen) - delta, 0)) - other
        found = np.maximum(found, np.nan_to_num(ratios, nan=0.0, posinf=np.inf, neginf=0.0).max(-1))
    return np.asarray(found)


@dataclass(frozen=True)
class _Test:
    """A score with a threshold, above which it says "x"."""

    name: str
    score: Score
    threshold: float

    def errors(self, x: Features, y: Features) -> tuple[int, int]:
        """Calls with y above the threshold, and calls with x not above it."""
        return int((self.score(y) > self.threshold).sum()), int((self.score(x) <= self.threshold).sum())


class TwoSample:
    """Tests between two inputs, fitted and chosen; `judge` and `judge_rounds` bound epsilon by the remaining calls.

    Args:
        x, y: equally many calls with each input.
        risk: probability that one of the two bounds fails, together; each gets half.
    """

    def __init__(self, x: Features, y: Features, *, delta: float, rounds: int, over: float, risk: float) -> None:
        n = len(x)
        fitted, chosen = int(n * FITTED), int(n * CHOSEN)
        self.scores = fit_scores(x.slice(0, fitted), y.slice(0, fitted))
        self._chosen = x.slice(fitted, chosen), y.slice(fitted, chosen)
        self._holdout = x.slice(chosen, n), y.slice(chosen, n)
        self._delta, self._rounds, self._over, self._risk = delta, rounds, over, risk / 2

    @property
    def holdout(self) -> tuple[Features, Features]:
        """The calls that neither fitted nor chose anything."""
        return self._holdout

    def judge(self) -> LowerBound:
        """For one release: two tests, one with few false positives and one with few false negatives."""
        found = LowerBound(0.0, self._delta, 1)
        risk = self._risk / 4  # two tests, two rates
        one_sided: tuple[Callable[[Reals, Reals], Reals], ...] = (
            lambda fpr, fnr: for_one(fpr, fnr, self._delta),
            lambda fpr, fnr: for_one(fnr, fpr, self._delta),
        )
        for value in one_sided:
            test = self._choose(risk, value)
            if test is None:
                continue
            fpr, fnr = self._rates(test, risk)
            epsilon = float(value(np.asarray(fpr), np.asarray(fnr)))
            if epsilon > found.epsilon:
                found = LowerBound(epsilon, self._delta, 1, test.name, fpr, fnr)
        return found

    def judge_rounds(self) -> LowerBound:
        """Over R releases: one test, whose threshold is chosen for R."""
        risk = self._risk / 2  # two rates

        test = self._choose(risk, lambda fpr, fnr: for_rounds(fpr, fnr, self._rounds, self._over))
        if test is None:
            return LowerBound(0.0, self._over, self._rounds)
        fpr, fnr = self._rates(test, risk)
        epsilon = float(for_rounds(np.asarray(fpr), np.asarray(fnr), self._rounds, self._over))
        return LowerBound(epsilon, self._over, self._rounds, test.name, fpr, fnr)

    def _rates(self, test: _Test, risk: float) -> tuple[float, float]:
        x, y = self._holdout
        false_positives, false_negatives = test.errors(x, y)
        return float(upper(false_positives, len(y), risk)), float(upper(false_negatives, len(x), risk))

    def _choose(self, risk: float, value: Callable[[Reals, Reals], Reals]) -> _Test | None:
        """The test with the largest bound if the rates on the judged calls were as on the choosing ones."""
        n = len(self._holdout[0])
        best, most = None, 0.0
        for name, score in self.scores.items():
            x, y = (score(side) for side in self._chosen)
            for thresholds in _chunks(x, y):
                above = (y[:, None] > thresholds).mean(0), (x[:, None] <= thresholds).mean(0)
                fpr, fnr = (upper(np.round(rate * n).astype(int), n, risk) for rate in above)
                bounds = value(fpr, fnr)
                if bounds.max(initial=0.0) > most:
                    most = float(bounds.max())
                    best = _Test(name, score, float(thresholds[int(bounds.argmax())]))
        return best


def _chunks(x: Reals, y: Reals) -> Iterator[Reals]:
    """Thresholds between the values of both sides: quantiles, denser in the tails."""
    values = np.unique(np.concatenate([x, y]))
    if len(values) > 1:
        middles = (values[1:] + values[:-1]) / 2
        if len(middles) > THRESHOLDS:
            tails = np.geomspace(1, len(middles) / 2, THRESHOLDS // 4).astype(int)
            even = np.linspace(0, len(middles) - 1, THRESHOLDS // 2).astype(int)
            middles = middles[np.unique(np.concatenate([tails - 1, len(middles) - tails, even]))]
        yield middles


def largest_provable(n: int, delta: float, risk: float) -> float:
    """The largest epsilon that n calls with each input can prove for one release, without a single error."""
    judged = n - int(n * CHOSEN)
    rate = float(upper(0, judged, risk / 8))
    return max(0.0, math.log((1 - delta - rate) / rate)) if rate < 1 - delta else 0.0
