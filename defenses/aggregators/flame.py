"""FLAME (Nguyen et al., USENIX Security 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, NonNegativeFloat, RuleContext, Sight, WeightRule
from fedguard.defenses.aggregators.clusters import cosine_distances, hdbscan


@dataclass(frozen=True, kw_only=True)
class Flame(WeightRule):
    """Keeps the tight majority of local models, shortens their updates to the median length, averages and adds noise.

    HDBSCAN on the cosine distances of the local models $w + x_i$, w the global model, with a smallest cluster of
    $floor(n/2) + 1$ and one neighbor, finds the one cluster A that more than half belong to. $R(x) = (1/|A|) sum_{i in A}
    x_i min(1, S / |x_i|) + N(0, (noise * S)^2 I)$ with S the median of all $|x_i|$. With these settings A is the smallest
    group, linked by nearest neighbors, that holds a majority. So even without an attack up to half of the honest updates are
    left out.

    If w is much longer than the updates, the distance of two models is about $|x_i - x_j|^2 / (2 |w|^2)$, less the part
    along w. So the length of an update counts, which the cosine of updates ignores.

    Args:
        of: ``models`` takes the cosines of the $w + x_i$, as the source does; ``updates`` takes the cosines of the $x_i$, as
            some other programs do, and needs no global model.
        noise: $lambda$, the standard deviation of the noise on each coordinate in units of S; 0.001 is the source's choice
            for images, 0.01 for network traffic.
    """

    name = "flame"
    source = "Nguyen et al., FLAME: Taming Backdoors in Federated Learning, USENIX Security 2022"
    needs = (Sight.EACH_UPDATE | Sight.MODEL, Sight.GROUP_SUMS | Sight.MODEL)
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix"
    grid: ClassVar = {"noise": (0.0, 0.001, 0.01), "of": ("models", "updates")}

    of: Literal["models", "updates"] = "models"
    noise: NonNegativeFloat = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of == "updates":
            object.__setattr__(self, "needs", ROWS)

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        held = {"model": context.model} if self.of == "models" else {}
        return {**held, "noise": torch.randn(dim, generator=context.rng.torch())} if self.noise else held

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        norms = gram.norms()
        bound = norms.quantile(0.5)
        distances = _between_models(gram) if self.of == "models" else cosine_distances(gram.products())
        admitted = hdbscan(distances, max(2, gram.n // 2 + 1), single=True) >= 0
        admitted |= ~admitted.any()  # a single update makes no cluster
        shortened = (bound / norms).clamp(max=1).nan_to_num(nan=1.0)
        weights = torch.where(admitted, shortened, 0.0) / admitted.sum().clamp(min=1)
        # The anchor is unit noise, drawn before the median is known; its weight brings the scale
        others = [0.0] * (self.of == "models") + [self.noise * float(bound)] * bool(self.noise)
        return torch.cat([weights, torch.tensor(others, dtype=torch.float64)])


def _between_models(gram: Gram) -> Tensor:
    """float64 ``[n, n]``: 1 - cos of the models $w + x_i$; 1 to and from a model of zeros.

    Computed as $(|x_i - x_j|^2 - (|w + x_i| - |w + x_j|)^2) / (2 |w + x_i| |w + x_j|)$, since rounding would erase 1 - cos
    itself if w is long.
    """
    own = gram.norms().square() + 2 * gram.products_with("model")  # |w + x_i|^2 - |w|^2
    origin = gram.unit("origin")
    model = gram.unit("model") - origin
    lengths = (own + model @ gram.inner @ model).clamp(min=0).sqrt()
    sums = lengths[:, None] + lengths[None, :]
    # A difference of lengths as one of squares over their sum: lengths of long models would cancel
    longer = ((own[:, None] - own[None, :]) / sums).nan_to_num(nan=0.0)
    apart = (gram.distances_squared() - longer.square()).clamp(min=0) / (2 * lengths[:, None] * lengths[None, :])
    return torch.where((lengths[:, None] > 0) & (lengths[None, :] > 0), apart, 1.0).clamp(max=2).fill_diagonal_(0)
