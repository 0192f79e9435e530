"""Running statistics averaged over the clients of a round, weighted by their numbers of examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedguard.contracts import CoordinateRule, StatisticsFate, StatisticsLayout


@dataclass(frozen=True, kw_only=True)
class Weighted(StatisticsFate):
    """The server averages the clients' running means and variances, weighted by their numbers of examples.

    $m = sum_i n_i m_i / sum_i n_i$, and v in the same way; $n_i$ is the number of examples that client i
    claims. The next round starts from it. This is what FedAvg on a whole state dict does, apart from the counter of batches,
    which stays at the clients.

    Args:
        rule: a rule by coordinates, such as ``median``, that combines the statistics instead, without weights; it assumes the
            same f as the rule for updates.
    """

    name = "weighted"
    source = "McMahan et al., AISTATS 2017, on all entries of a state dict"
    adds_up = "variances"
    later: ClassVar[Mapping[str, Any]] = {"rule": None}
    words = "the server averages the means and variances that clients send, weighted by their numbers of examples"

    rule: CoordinateRule | None = None

    def combine(self, rows: Tensor, samples: Tensor, layout: StatisticsLayout) -> Tensor:
        return ((samples / samples.sum()) @ rows.double()).to(rows.dtype)
