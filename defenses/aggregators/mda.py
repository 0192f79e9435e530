"""Minimum-diameter averaging (El Mhamdi et al., PODC 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import TIE
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class MDA(WeightRule):
    """The mean of the n - f updates that lie closest together.

    $R(x) = mean_S$ with the smallest $max_{i, j in S} |x_i - x_j|$ among all S with $|S| = n - f$. The search is exact: it
    finds the smallest distance t such that f updates can be dropped and no remaining pair is farther apart than t, by
    bisection over the sorted distances and branching over the updates to drop. Its time grows with f and hardly with n.

    The source does not define ties, which are common, since one pair often decides the diameter of several subsets. Here
    the updates are ranked by the sum of distances to their n - f nearest, then by length, then in a random order that
    depends on their values only. Among tied subsets the first one in this ranking wins, so the order of the clients does not
    matter.
    """

    name = "mda"
    source = "El Mhamdi et al., Genuinely Distributed Byzantine Machine Learning, PODC 2020"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix; up to 1.6^f steps of O(n) for each of O(n) questions"

    #: The largest f for which the search runs.
    LIMIT = 30

    def check(self, n: int, f: int) -> None:
        super().check(n, f)
        if f > self.LIMIT:
            raise PreconditionError(
                f"mda finds its subset exactly, in a time that grows exponentially with f, and takes f <= {self.LIMIT}; "
                f"got f = {f}. Lower f or clients.per_round, or use multi_krum."
            )

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        size = gram.n - context.f
        distances = gram.distances_squared().sqrt()
        kept = smallest_diameter(distances, size, rank_updates(gram, size))
        return torch.zeros(gram.n, dtype=torch.float64).index_fill_(0, torch.tensor(kept), 1 / size)

    def kappa(self, n: int, f: int) -> float:
        """8 f^2 / (n - f).

        From ``|R - mean_S| <= 2f / (n - f) max_{i,j in S} |x_i - x_j|`` (Farhadkhani et al., ICML 2022) and
        ``|x_i - x_j|^2 <= 2 sum_{k in S} |x_k - mean_S|^2``.
        """
        return 8 * f**2 / (n - f)


def rank_updates(gram: Gram, size: int) -> list[int]:
    """The updates by the sum of distances to their ``size`` nearest and by length, to six digits, then by `Gram.order`."""
    near = gram.distances_squared().sqrt().sort(dim=1).values[:, :size].sum(1).tolist()
    norms = gram.norms().tolist()
    # Six digits are coarser than the rounding of inner products, which would else rank equal updates by their rows
    keys = [(float(f"{one:.5e}"), float(f"{other:.5e}")) for one, other in zip(near, norms, strict=True)]
    tied = len(set(keys)) < gram.n
    return sorted(gram.order.tolist() if tied else range(gram.n), key=keys.__getitem__)


def smallest_diameter(distances: Tensor, size: int, ranking: Sequence[int]) -> list[int]:
    """The ``size`` rows with the smallest diameter; of tied subsets the first in ``ranking``."""
    n = len(distances)
    rows = distances.tolist()
    levels = sorted({distance for i, row in enumerate(rows) for distance in row[:i]} | {0.0})
    everyone, spare = (1 << n) - 1, n - size
    low, high = 0, len(levels) - 1
    # A longer diameter needs no more updates dropped, so bisection over the distances is exact
    while low < high:
        middle = (low + high) // 2
        if can_drop(_apart(rows, levels[middle]), everyone, spare):
            high = middle
        else:
            low = middle + 1
    apart = _apart(rows, levels[low])
    kept: list[int] = []
    left = everyone
    for row in ranking:
        if not left >> row & 1:
            continue
        left &= ~(1 << row)
        leaving = apart[row] & left
        if can_drop(apart, left & ~leaving, spare - leaving.bit_count()):
            kept.append(row)
            left, spare = left & ~leaving, spare - leaving.bit_count()
        else:
            spare -= 1
    # With fewer conflicts than updates to drop, more than `size` may stay: the first in the ranking do
    return kept[:size]


def can_drop(apart: Sequence[int], among: int, spare: int) -> bool:
    """Whether ``spare`` rows can be dropped from ``among`` so that no two that stay are apart (a vertex cover).

    Sets of rows are bit masks. Either the row with the most conflicts is dropped, or all rows in conflict with it.
    """
    if spare < 0:
        return False
    conflicts = {row: (apart[row] & among).bit_count() for row in range(len(apart)) if among >> row & 1}
    pairs = sum(conflicts.values()) // 2
    if pairs == 0:
        return True
    # Branching on the most conflicts makes the second branch drop the most updates: hence 1.6^f, not 2^f
    worst = max(conflicts, key=conflicts.__getitem__)
    most = conflicts[worst]
    # One dropped row settles `most` pairs at the most
    if pairs > most * spare:
        return False
    without = among & ~(1 << worst)
    if most == 1:
        return True  # single pairs, and no more of them than may be dropped
    return can_drop(apart, without, spare - 1) or can_drop(apart, without & ~apart[worst], spare - most)


def _apart(distances: Sequence[Sequence[float]], bound: float) -> list[int]:
    """For each row the bit mask of the rows that are farther away than ``bound``."""
    # A pair at the bound itself must not count as farther away after rounding
    limit = bound * (1 + TIE)
    return [sum(1 << j for j, distance in enumerate(row) if distance > limit) for row in distances]
