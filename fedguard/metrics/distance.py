"""How far the aggregate of one round is from the mean of the honest updates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedguard.kernels import LONG_BYTES, walk
from fedguard.metrics.aggregate import AggregateMetrics


def measure_aggregate(
    aggregate: Tensor, updates: Tensor, honest: Sequence[int], malicious: Sequence[int]
) -> AggregateMetrics | None:
    """The metrics of one aggregate; None with fewer than two honest updates.

    Computed in float64, in blocks of columns, so that no second ``[n, d]`` matrix is made.

    Args:
        aggregate: float32 ``[d]``.
        updates: float32 ``[n, d]``.
        honest, malicious: rows of ``updates`` that arrived.
    """
    if len(honest) < 2:
        return None
    honest, malicious = list(honest), list(malicious)
    mean = torch.empty(updates.shape[1], dtype=torch.float64)
    around = torch.zeros(len(honest), dtype=torch.float64)
    lengths = torch.zeros(len(updates), dtype=torch.float64)
    for block in walk(updates, size=LONG_BYTES):
        rows = updates[:, block].double()
        lengths = torch.hypot(lengths, rows.norm(dim=1))
        rows = rows[honest]
        mean[block] = rows.mean(0)
        around += rows.sub_(mean[block]).square_().sum(1)
    answer, spread, usual = aggregate.double(), around.mean(), float(lengths[honest].mean())
    return {
        "kappa": float((answer - mean).square_().sum() / spread) if spread > 0 else None,
        "cosine": float(cosine_similarity(answer, mean, dim=0)),
        "hostile_length": float(lengths[malicious].mean()) / usual if malicious and usual else None,
    }
