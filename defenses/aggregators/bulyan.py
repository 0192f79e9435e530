"""Bulyan (El Mhamdi et al., ICML 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, MatrixRule, RuleContext
from fedguard.defenses.aggregators.krum import Krum
from fedguard.kernels import gram_matrix, projections, sort_rows, walk


@dataclass(frozen=True, kw_only=True)
class Bulyan(MatrixRule):
    """Selects n - 2f updates by repeated Krum, then averages each coordinate over the values closest to the median.

    Krum chooses among the remaining updates, $theta = n - 2f$ times; each chosen update leaves the pool. Then $R(x)_k$ is
    the mean of the $beta = theta - 2f$ values among the chosen $x_ik$ that are closest to their median; if several sets of
    values are equally close, the mean of the lowest and the highest set. For $f = 0$ it is the mean. The selection needs
    inner products only, and the second step single coordinates. So the updates are read twice and never copied as a whole.
    Ties of Krum are resolved as in `krum`; updates that remain tied are chosen in a random order that depends on their
    values, not on their positions.
    """

    name = "bulyan"
    source = "El Mhamdi et al., The Hidden Vulnerability of Distributed Learning in Byzantium, ICML 2018"
    needs = ROWS
    min_rows = (4, 3)
    breakdown = "f <= (n - 3) / 4"
    cost = "O(n^2 d + n^4): one Gram matrix, theta runs of Krum on it, one sort of each column"
    by_blocks = True

    def combine(self, updates: Tensor, context: RuleContext) -> Tensor:
        draw = context.rng.child("ties").torch()
        chosen = select_by_krum(gram_matrix(updates), context, lambda: projections(updates, draw))
        vector = torch.empty_like(updates[0])
        for block in walk(updates):
            # n >= 4f + 3 leaves at least three values to average
            vector[block] = mean_around_median(sort_rows(updates[chosen, block]), len(chosen) - 2 * context.f)
        return vector


def select_by_krum(inner: Tensor, context: RuleContext, projected: Callable[[], Tensor]) -> list[int]:
    """The rows that repeated Krum chooses, in the order of choice.

    Args:
        inner: the Gram matrix of rows and origin.
        projected: returns float64 ``[n]``; among tied rows the one with the smallest value is chosen. Called only for ties.
    """
    pool, first = list(range(len(inner) - 1)), cache(projected)
    chosen: list[int] = []
    for _ in range(len(pool) - 2 * context.f):
        rows = [*pool, len(inner) - 1]
        # The assumed f stays as it is while the pool shrinks: all f malicious updates may still be in it
        tied = Krum().weights(_gram(inner[rows][:, rows]), context).nonzero()[:, 0].tolist()
        place = tied[0] if len(tied) == 1 else min(tied, key=lambda at: float(first()[pool[at]]))
        chosen.append(pool.pop(place))  # Krum names a place in the pool, which is not the row's own number
    return chosen


def mean_around_median(ordered: Tensor, count: int) -> Tensor:
    """``[b]``: in each column of ``ordered`` (``[m, b]``, ascending) the mean of the ``count`` values closest to its median.

    In a sorted column these values are adjacent, so the best of the m - count + 1 windows is sought. If windows tie, the
    result is the mean over the lowest and the highest window, which favors neither side.
    """
    m = len(ordered)
    median = (ordered[(m - 1) // 2] + ordered[m // 2]) / 2
    reach = torch.maximum(median - ordered[: m - count + 1], ordered[count - 1 :] - median)
    window = torch.arange(count, device=ordered.device)[:, None]
    # argmin returns the first of equal values, so the flipped search finds the last of the tied windows
    lowest, highest = reach.argmin(dim=0), m - count - reach.flip(0).argmin(dim=0)
    result = ordered.gather(0, lowest + window).mean(0)
    return result if torch.equal(lowest, highest) else (result + ordered.gather(0, highest + window).mean(0)) / 2


def _gram(inner: Tensor) -> Gram:
    return Gram(lambda: inner, len(inner) - 1)
