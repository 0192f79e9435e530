"""FLAME (Nguyen et al., USENIX Security 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, NonNegativeFloat, RuleContext, WeightRule
from fedguard.defenses.aggregators.clusters import cosine_distances, hdbscan


@dataclass(frozen=True, kw_only=True)
class Flame(WeightRule):
    """Keeps the tight majority of directions, shortens its updates to the median length, averages and adds noise.

    HDBSCAN on the cosine distances of the updates, with a smallest cluster of $floor(n/2) + 1$ and one neighbour, finds the
    one cluster A that more than half belong to. $R(x) = (1/|A|) sum_{i in A} x_i min(1, S / |x_i|) + N(0, (noise * S)^2 I)$
    with S the median of all $|x_i|$. With these settings A is the smallest group, linked by nearest neighbours, that holds
    a majority: in quiet rounds too, up to half of the honest updates are left out.

    Args:
        noise: $lambda$, the standard deviation of the noise on each coordinate in units of S; 0.001 is the source's choice
            for images, 0.01 for network traffic.
    """

    name = "flame"
    source = "Nguyen et al., FLAME: Taming Backdoors in Federated Learning, USENIX Security 2022"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix"
    grid: ClassVar = {"noise": (0.0, 0.001, 0.01)}

    noise: NonNegativeFloat = 0.001

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {"noise": torch.randn(dim, generator=context.rng.torch())} if self.noise else {}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        norms = gram.norms()
        bound = norms.quantile(0.5)
        labels = hdbscan(cosine_distances(gram.products()), max(2, gram.n // 2 + 1), single=True)
        admitted = (labels >= 0) | (gram.n == 1)
        shortened = (bound / norms).clamp(max=1).nan_to_num(nan=1.0)
        weights = torch.where(admitted, shortened, 0.0) / admitted.sum().clamp(min=1)
        return torch.cat([weights, self.noise * bound[None]]) if self.noise else weights
