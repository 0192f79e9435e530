"""How far aggregates are from the mean of the honest updates: what is stored of it, and the summary of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NotRequired

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Number


class AggregateMetrics(TypedDict):
    """The aggregate R of a round beside the honest updates $x_i$ with mean $mu$; of a training, see `summarize_aggregates`.

    Attributes:
        kappa: $|R - mu|^2 / (mean_i |x_i - mu|^2)$: a lower bound on the rule's robustness coefficient. Of a training, the
            largest of a round.
        cosine: cosine of the aggregate with the honest mean. Of a training, the mean over its rounds.
        hostile_length: mean norm of the malicious updates, over the mean norm of the honest ones. Of a training, the mean over
            its rounds.
        factor_bias: $|mean(B) mean(A) - mean(B A)|_F / |mean(B A)|_F$ of all clients' adapters, where factors are averaged
            apart (``training.adapters: {form: factors}``). Of a training, the mean over its rounds.
    """

    kappa: Number | None
    cosine: Number | None
    hostile_length: Number | None
    factor_bias: NotRequired[Number | None]


def summarize_aggregates(rounds: Sequence[Mapping[str, float | None]]) -> AggregateMetrics:
    """The metrics of a training, from the metrics of its measured rounds."""
    summary: AggregateMetrics = {
        "kappa": max((one["kappa"] for one in rounds if one["kappa"] is not None), default=None),
        "cosine": _mean_of_finite([one["cosine"] for one in rounds]),
        "hostile_length": _mean_of_finite([one["hostile_length"] for one in rounds]),
    }
    if any("factor_bias" in one for one in rounds):
        summary["factor_bias"] = _mean_of_finite([one.get("factor_bias") for one in rounds])
    return summary


def _mean_of_finite(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None
