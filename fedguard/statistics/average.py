"""Running statistics averaged over the clients of a round, each with the same weight."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import StatisticsFate, StatisticsLayout


@dataclass(frozen=True, kw_only=True)
class Average(StatisticsFate):
    """The server averages the clients' running means and variances, each client alike.

    $m = (1/n) sum_i m_i$, and v in the same way. The next round starts from it. A client with few examples has
    noisy statistics, and counts as much as any other.
    """

    name = "average"
    source = "FedAvg on all entries of a state dict, without weights"
    words = "the server averages the means and variances that clients send, each client alike"
    adds_up = "variances"
    by_samples = False

    def combine(self, rows: Tensor, samples: Tensor, layout: StatisticsLayout) -> Tensor:
        return rows.double().mean(0).to(rows.dtype)
