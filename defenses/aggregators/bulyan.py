"""Bulyan (El Mhamdi et al., ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fedguard.defenses.aggregators.krum import Krum
from torch import Tensor

from fedguard.contracts import ROWS, Gram, MatrixRule, RuleContext
from fedguard.kernels import gram_matrix, sort_rows, walk


@dataclass(frozen=True, kw_only=True)
class Bulyan(MatrixRule):
    """Selects n - 2f updates by repeated Krum, then averages each coordinate over the values closest to the median.

    Krum chooses among the updates that are left, theta = n - 2f times; each chosen one leaves the pool. Then R(x)_k is
    the mean of the beta = theta - 2f values among the chosen x_ik that lie closest to their median; where that leaves
    several choices, the mean of the lowest and the highest. For f = 0 it is the mean. The selection looks at inner
    products alone, the second step at single coordinates, so that the updates are passed over twice and never copied as
    a whole. Ties of Krum are resolved as `krum` does; which of several updates that remain tied goes first follows their
    order.
    """

    name = "bulyan"
    source = "El Mhamdi et al., The Hidden Vulnerability of Distributed Learning in Byzantium, ICML 2018"
    needs = ROWS
    min_rows = (4, 3)
    breakdown = "f <= (n - 3) / 4"
    cost = "O(n^2 d + n^4): one Gram matrix, theta runs of Krum on it, one sort of each column"
    by_blocks = True

    def combine(self, updates: Tensor, context: RuleContext) -> Tensor:
        chosen = selected(gram_matrix(updates), context)
        vector = torch.empty_like(updates[0])
        for block in walk(updates):
            vector[block] = mean_around_median(sort_rows(updates[chosen, block]), len(chosen) - 2 * context.f)
        return vector


def selected(inner: Tensor, context: RuleContext) -> list[int]:
    """The rows that repeated Krum chooses, in the order of choice; ``inner`` is the Gram matrix of rows and origin."""
    pool = list(range(len(inner) - 1))
    chosen: list[int] = []
    for _ in range(len(pool) - 2 * context.f):
        rows = [*pool, len(inner) - 1]
        place = Krum().weights(_gram(inner[rows][:, rows]), context).argmax()
        chosen.append(pool.pop(int(place)))  # Krum names a place in the pool, which is not the row's own number
    return chosen


def mean_around_median(ordered: Tensor, count: int) -> Tensor:
    """``[b]``: of each column of ``ordered`` (``[m, b]``, ascending) the mean of the ``count`` values closest to its median.

    In a sorted column these stand side by side, so the best of the m - count + 1 windows is sought; where windows tie,
    the mean of the lowest and the highest, which favours neither side.
    """
    m = len(ordered)
    median = (ordered[(m - 1) // 2] + ordered[m // 2]) / 2
    reach = torch.maximum(median - ordered[: m - count + 1], ordered[count - 1 :] - median)
    window = torch.arange(count, device=ordered.device)[:, None]
    lowest, highest = reach.argmin(dim=0), m - count - reach.flip(0).argmin(dim=0)
    result = ordered.gather(0, lowest + window).mean(0)
    return result if torch.equal(lowest, highest) else (result + ordered.gather(0, highest + window).mean(0)) / 2


def _gram(inner: Tensor) -> Gram:
    return Gram(lambda: inner, len(inner) - 1)
