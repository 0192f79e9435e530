"""Clustering by cosine similarity (Sattler et al., ICASSP 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import TIE


@dataclass(frozen=True, kw_only=True)
class CosineClustering(WeightRule):
    """Splits the updates in two by their directions, and averages the larger part.

    The split A, B is the one with the smallest max over i in A, j in B of $cos(x_i, x_j)$: single linkage, cut at its
    weakest link. $R(x)$ is the mean of the larger part. If several links are the weakest, all of them are cut. If no part is
    larger than all others, no update is dropped, since no part is then a majority. Only directions count: a long update in
    the direction of the others stays.

    In the source each part continues as a federation of its own, and splits come late, when training has converged. Here
    there is one model, the smaller part is dropped, and each round is split anew.
    """

    name = "cosine_clustering"
    source = "Sattler et al., On the Byzantine Robustness of Clustered Federated Learning, ICASSP 2020"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2, if the malicious updates point elsewhere and the honest ones hold together"
    cost = "O(n^2 d): one Gram matrix"

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        products, norms = gram.products(), gram.norms()
        # An update of zeros has no direction: its cosine to all others counts as 0
        cosines = (products / norms[:, None] / norms).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        parts = weakest_cut(cosines.fill_diagonal_(1).numpy())
        sizes = np.bincount(parts)
        largest = np.flatnonzero(sizes == sizes.max())
        kept = torch.from_numpy(parts == largest[0]) if len(largest) == 1 else torch.ones(gram.n, dtype=torch.bool)
        return kept.double() / kept.sum()


def weakest_cut(similarities: np.ndarray) -> np.ndarray:
    """int ``[n]``: the part of each row, once the weakest of the links that connect all rows are cut."""
    levels = np.unique(similarities)
    # Links only go as the level rises, so bisection finds the weakest link in O(log n) searches of the graph
    low, high = 0, len(levels) - 1  # at the lowest level all rows are connected
    while low < high:
        middle = (low + high + 1) // 2
        if _parts(similarities >= levels[middle]).max() == 0:
            low = middle
        else:
            high = middle - 1
    return _parts(similarities > levels[low] + TIE)


def _parts(linked: np.ndarray) -> np.ndarray:
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(linked, directed=False)[1])
