"""SignGuard (Xu et al., ICDCS 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from fedguard.contracts import ROWS, Gram, RuleContext, Share, WeightRule
from fedguard.defenses.aggregators.clusters import distances_between, mean_shift, members
from fedguard.defenses.aggregators.ties import smallest


@dataclass(frozen=True, kw_only=True)
class SignGuard(WeightRule):
    """Keeps updates of a usual length and of a usual mixture of signs, shortens them to the median length, and averages.

    With M the median of the $|x_i|$, first those with $lower <= |x_i| / M <= upper$. Second, the shares $p_is$ of positive,
    zero and negative signs s on a block of neighboring coordinates, each as $p_is / max_j p_js$ so that few zeros weigh as
    much as many positive values, are clustered by mean-shift, and the largest cluster is kept. The result is the mean of
    $x_i min(1, M / |x_i|)$ over the updates in both sets; if there is none, the model stays as it is. Among clusters of equal
    size, a tie that the source does not define, the one with the closest updates is kept, or all that tie in this too.

    Args:
        lower, upper: bounds of the usual length, in units of M.
        share: the length of the block, as a share of all coordinates; its start is drawn in each round.
        quantile: sets the bandwidth of the mean-shift: the mean distance within which an update has this share of all.
    """

    name = "sign_guard"
    source = (
        "Xu et al., Byzantine-robust Federated Learning through Collaborative Malicious Gradient Filtering, ICDCS 2022"
    )
    needs = ROWS
    by_blocks = False
    min_rows = (2, 1)
    breakdown = "f < n/2, if malicious signs are mixed unlike honest ones"
    cost = "O(n^2 d): one Gram matrix; O(n^2) for the mean-shift"
    grid: ClassVar = {"upper": (2.0, 3.0, 5.0), "share": (0.1, 1.0), "quantile": (0.3, 0.5)}

    lower: Annotated[float, Ge(0), Lt(1)] = 0.1
    upper: Annotated[float, Ge(1)] = 3.0
    share: Share = 0.1
    quantile: Share = 0.5

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        norms = gram.norms()
        usual = norms.quantile(0.5)
        kept = (norms >= self.lower * usual) & (norms <= self.upper * usual)
        kept &= _largest(_clusters(self._mixtures(gram.vectors, context), self.quantile), gram.distances_squared())
        shortened = (usual / norms).clamp(max=1).nan_to_num(nan=1.0)
        return torch.where(kept, shortened, 0.0) / kept.sum().clamp(min=1)

    def _mixtures(self, vectors: Tensor, context: RuleContext) -> Tensor:
        """float64 ``[n, 3]``: the shares of positive, zero and negative signs, over the largest share of any update."""
        d = vectors.shape[1]
        count = math.ceil(self.share * d)
        # A fixed block would let malicious clients keep their usual signs in it, and change all others
        start = int(torch.randint(d - count + 1, (), generator=context.rng.torch()))
        signs = vectors[:, start : start + count].sign()
        shares = torch.stack([(signs == sign).double().mean(1) for sign in (1, 0, -1)], 1)
        most: Tensor = shares.amax(0).clamp(min=1 / count)  # where nobody has the sign, all stay 0
        return shares / most


def _clusters(points: Tensor, quantile: float) -> Tensor:
    """int64 ``[n]``: the clusters of a mean-shift; its bandwidth is the mean distance to the ``quantile`` nearest points."""
    n = len(points)
    distances = distances_between(points)
    # As scikit-learn's estimate_bandwidth: the point itself counts among its nearest
    bandwidth = float(distances.sort(dim=1).values[:, max(1, int(quantile * n)) - 1].mean())
    return mean_shift(points, max(bandwidth, 1e-9))  # 0 where most are alike, and then only those alike belong together


def _largest(labels: Tensor, distances: Tensor) -> Tensor:
    """bool ``[n]``: the largest cluster; among clusters of equal size, the smallest sum of squared distances decides."""
    clusters = members(labels)
    most = max(int(inside.sum()) for inside in clusters)
    largest = torch.stack([inside for inside in clusters if int(inside.sum()) == most])
    apart = torch.stack([distances[inside][:, inside].sum() for inside in largest])
    # A first-come choice would let malicious clients win a tie by their position
    return largest[smallest(apart)].any(0)
