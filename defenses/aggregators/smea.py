"""Smallest maximum eigenvalue averaging (Allouah et al., ICML 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import TIE
from fedguard.errors import PreconditionError

#: Subsets in the first batch of eigenvalues; each further batch is twice as large.
BATCH = 32


@dataclass(frozen=True, kw_only=True)
class SMEA(WeightRule):
    """The mean of the n - f updates that spread the least in the direction in which they spread the most.

    $R(x) = mean_S$ with the smallest $lambda_max((1/|S|) sum_{i in S} (x_i - mean_S)(x_i - mean_S)^T)$, $|S| = n - f$,
    found exactly: the variance along any direction is a lower bound of $lambda_max$, so the top directions of the
    subsets evaluated first rule out most of the others. The source does not define ties. Here the subset with the smaller
    total variance wins, then the one with the shorter mean; subsets that still tie share the result.
    """

    name = "smea"
    source = "Allouah et al., On the Privacy-Robustness-Utility Trilemma in Distributed Learning, ICML 2023"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix; at worst an eigenvalue for each of the n over f subsets"

    #: The largest number of subsets among which it searches.
    LIMIT = 200_000

    def check(self, n: int, f: int) -> None:
        super().check(n, f)
        if math.comb(n, f) > self.LIMIT:
            raise PreconditionError(
                f"smea searches all subsets of n - f updates, up to {self.LIMIT:,} of them; n = {n} and f = {f} make "
                f"{math.comb(n, f):,}. Lower f or clients.per_round, or use caf, its polynomial relative."
            )

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return torch.from_numpy(_SubsetSearch(gram, context.f).best())

    def kappa(self, n: int, f: int) -> float:
        """4f / (n - f) (1 + r)^2 with r = f / (n - 2f) (the source, for lambda_max in place of the trace)."""
        return 4 * f / (n - f) * (1 + f / (n - 2 * f)) ** 2


class _SubsetSearch:
    """Best-first search over the subsets, with the directions seen so far as lower bounds."""

    def __init__(self, gram: Gram, f: int) -> None:
        self._inner = gram.inner[: gram.n, : gram.n].numpy()
        self._products = gram.products().numpy()
        n, count = gram.n, math.comb(gram.n, f)
        dropped = np.fromiter(chain.from_iterable(combinations(range(n), f)), dtype=np.int64, count=count * f)
        # All subsets at once: n float64 each, which LIMIT keeps in memory
        self._stays = np.ones((count, n))
        np.put_along_axis(self._stays, dropped.reshape(count, f), 0.0, axis=1)
        self._size = n - f

    def best(self) -> np.ndarray:
        """float64 ``[n]``: the weights of the rows in the mean of the best subset, or of all that tie for it."""
        open_, floor = np.arange(len(self._stays)), np.zeros(len(self._stays))
        found, batch, looked, spreads = math.inf, BATCH, [open_[:0]], [np.zeros((0, 4))]
        while len(open_):
            order = np.argsort(floor, kind="stable")
            looked.append(open_[order[:batch]])
            open_, floor = open_[order[batch:]], floor[order[batch:]]
            spread, directions = self._spread(np.nonzero(self._stays[looked[-1]])[1].reshape(-1, self._size))
            spreads.append(spread)
            found = min(found, spread[:, 0].min())
            # Bad subsets mostly spread along the directions already found, and so fall without an eigenvalue of their own
            floor = np.maximum(floor, self._along(directions[:, :BATCH], open_))
            still = floor <= found * (1 + TIE)  # the inner products are rounded, and so are the bounds
            open_, floor, batch = open_[still], floor[still], 2 * batch
        tied, values = np.concatenate(looked), np.concatenate(spreads)
        for measure in range(3):  # of which the last is a difference of squares, and as exact as these are
            slack = TIE * values[:, 3 if measure == 2 else measure]
            best = values[:, measure] - slack <= values[:, measure].min()
            tied, values = tied[best], values[best]
        weights: np.ndarray = self._stays[tied].mean(0) / self._size
        return weights

    def _spread(self, subsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per subset: top eigenvalue, total variance, squared lengths of mean and rows; all rows along its top direction."""
        pairs = subsets[:, :, None], subsets[:, None, :]
        inner = self._inner[pairs]
        across = inner.mean(1, keepdims=True)
        values, vectors = np.linalg.eigh(inner - across - across.transpose(0, 2, 1) + across.mean(2, keepdims=True))
        top, total = values[:, -1].clip(min=0) / self._size, values.clip(min=0).sum(1) / self._size
        length, lengths = self._products[pairs].mean((1, 2)), self._products.diagonal()[subsets].mean(1)
        # The top eigenvector of a centered matrix adds up to 0, so the rows need not be centered
        along = np.einsum("nkm,km->nk", self._inner[:, subsets], vectors[:, :, -1])
        scale = np.sqrt(values[:, -1].clip(min=0))
        along = np.divide(along, scale, out=np.zeros_like(along), where=scale > 0)
        return np.stack([top, total, length, lengths], 1), along

    def _along(self, directions: np.ndarray, subsets: np.ndarray) -> np.ndarray:
        """The largest variance of each subset along any of the ``directions``, a lower bound of its top eigenvalue."""
        stays = self._stays[subsets] / self._size
        # A variance does not depend on the origin of `directions`, and no unit direction has more than lambda_max
        variances: np.ndarray = stays @ directions**2 - (stays @ directions) ** 2
        return np.asarray(variances.max(axis=1, initial=0.0))
