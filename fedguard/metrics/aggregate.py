"""How far an aggregate is from the mean of the honest updates: measured in a round, and over a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from typing_extensions import TypedDict

from fedguard.kernels import LONG_BYTES, walk
from fedguard.metrics.quantities import Number


class AggregateMetrics(TypedDict):
    """The aggregate R of a round beside the honest updates $x_i$ with mean $mu$; of a training, see `summarize_aggregates`.

    Attributes:
        kappa: $|R - mu|^2 / (mean_i |x_i - mu|^2)$: a lower bound on the rule's robustness coefficient. Of a training, the
            largest of a round.
        cosine: cosine of the aggregate with the honest mean. Of a training, the mean over its rounds.
        hostile_length: mean norm of the malicious updates, over the mean norm of the honest ones. Of a training, the mean over
            its rounds.
    """

    kappa: Number | None
    cosine: Number | None
    hostile_length: Number | None


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


def summarize_aggregates(rounds: Sequence[Mapping[str, float | None]]) -> AggregateMetrics:
    """The metrics of a training, from the metrics of its measured rounds."""
    return {
        "kappa": max((one["kappa"] for one in rounds if one["kappa"] is not None), default=None),
        "cosine": _mean_of_finite([one["cosine"] for one in rounds]),
        "hostile_length": _mean_of_finite([one["hostile_length"] for one in rounds]),
    }


def _mean_of_finite(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None
