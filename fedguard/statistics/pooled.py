"""Running statistics of the pooled examples, by the law of total variance."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import StatisticsFate, StatisticsLayout


@dataclass(frozen=True, kw_only=True)
class Pooled(StatisticsFate):
    """The server computes the moments of all clients' examples together from each client's.

    $m = sum_i w_i m_i$, $v = sum_i w_i (v_i + m_i^2) - m^2$; $w_i$ is client i's share of the claimed
    examples. Clients whose means differ raise the variance, which an average of variances misses.
    """

    name = "pooled"
    source = "the law of total variance"
    words = (
        "the server pools the moments that clients send, weighted by their numbers of examples, so that different means of "
        "clients add to the variance"
    )
    adds_up = "squares"

    def combine(self, rows: Tensor, samples: Tensor, layout: StatisticsLayout) -> Tensor:
        weights, rows64 = samples / samples.sum(), rows.double()
        means, variances = rows64[:, ~layout.variances], rows64[:, layout.variances]
        pooled, mean = weights @ rows64, weights @ means
        # A rounding error may take it below 0 if all means are equal
        pooled[layout.variances] = (weights @ (variances + means.square()) - mean.square()).clamp(min=0)
        return pooled.to(rows.dtype)
