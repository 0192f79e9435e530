"""RFLBAT (Wang et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from fedguard.contracts import ROWS, Gram, PositiveInt, RuleContext, WeightRule
from fedguard.defenses.aggregators.clusters import clusters_by_gap, cosine_distances, distances_between, kmeans, members
from fedguard.defenses.aggregators.ties import TIE, merge_ties


@dataclass(frozen=True, kw_only=True)
class RFLBAT(WeightRule):
    """Drops outliers among the principal components, and of the clusters there keeps the one whose updates differ most.

    On the first two principal components: (1) updates with a sum of distances to all others of at least eps1 times the
    median sum are dropped; (2) k-means with the number of clusters from the gap statistic, of which the cluster of two or more
    updates with the smallest median mean cosine similarity is kept, since malicious updates resemble each other more than
    honest ones; (3) as (1) within this cluster, with eps2. The result is the mean of the remaining updates.

    Args:
        eps1, eps2: the two thresholds, in units of the median sum of distances.
        clusters: the largest number of clusters that the gap statistic tries.
        references: number of sets of uniform points for the gap statistic.
    """

    name = "rflbat"
    source = "Wang et al., RFLBAT: A Robust Federated Learning Algorithm against Backdoor Attack, 2022"
    needs = ROWS
    min_rows = (0, 3)
    breakdown = "none proven; the source sets no bound on f"
    cost = "O(n^2 d): one Gram matrix; k-means on the plane"
    grid: ClassVar = {"eps1": (5.0, 10.0), "eps2": (2.0, 4.0), "clusters": (2, 10)}

    eps1: Annotated[float, Gt(1)] = 10.0
    eps2: Annotated[float, Gt(1)] = 4.0
    clusters: PositiveInt = 10
    references: PositiveInt = 5

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        # The orientation of the axes and the first of tied clusters depend on the order of the rows: values decide it
        kept = gram.order[self._filter_rows(gram.mix(torch.eye(gram.n, dtype=torch.float64)[gram.order]), context)]
        return torch.zeros(gram.n, dtype=torch.float64).index_fill_(0, kept, 1 / len(kept))

    def _filter_rows(self, gram: Gram, context: RuleContext) -> Tensor:
        """int64: the rows that stay."""
        # Rounding separates equal updates in the plane, and k-means would find clusters in that
        plane = torch.stack([merge_ties(component) for component in principal_components(gram, 2).T], 1)
        kept = _usual(plane, torch.arange(gram.n), self.eps1)
        count = clusters_by_gap(plane[kept], self.clusters, self.references, context.rng.torch())
        labels = kmeans(plane[kept][None], count, context.rng.child("clusters").torch())[0][0]
        cosines = 1 - cosine_distances(gram.products())
        kept = kept[_least_alike(labels, cosines[kept][:, kept])]
        return _usual(plane, kept, self.eps2)


def principal_components(gram: Gram, count: int) -> Tensor:
    """float64 ``[n, count]``: the updates on their first principal axes, each oriented so that the sum of cubes is positive.

    If the cubes add up to 0, it is oriented so that the first update is positive.
    """
    mean = torch.zeros(gram.rows, dtype=torch.float64)
    mean[: gram.n] = 1 / gram.n
    values, vectors = torch.linalg.eigh(gram.about(mean))
    told = torch.where(values > TIE * values[-1], values, 0.0)  # below that it is rounding
    scores = vectors.flip(1)[:, :count] * told.flip(0)[:count].sqrt()
    # Eigenvectors have no sign of their own: the skew of the scores gives one that the order of the rows does not change
    cubes = (scores / scores.abs().amax().clamp(min=1e-300)).pow(3)
    skew = cubes.sum(0)
    turned = torch.where(skew.abs() > TIE * cubes.abs().sum(0), skew, scores[0])
    return torch.where(turned < 0, -scores, scores)


def _usual(plane: Tensor, among: Tensor, threshold: float) -> Tensor:
    """The rows ``among`` with a sum of distances to the others below ``threshold`` medians; all rows if they are equal."""
    far = distances_between(plane[among]).sum(1)
    # `far == 0` keeps equal updates, which the strict inequality with a median of 0 would drop
    return among[(far < threshold * far.quantile(0.5)) | (far == 0)]


def _least_alike(labels: Tensor, cosines: Tensor) -> Tensor:
    """bool ``[n]``: the cluster with the smallest median of mean cosine similarities; for a single update it is 1."""
    best, smallest = torch.ones_like(labels, dtype=torch.bool), torch.inf
    for inside in members(labels):
        alike = float(cosines[inside][:, inside].mean(1).quantile(0.5)) if inside.sum() > 1 else 1.0
        if alike < smallest - TIE:
            best, smallest = inside, alike
    return best
