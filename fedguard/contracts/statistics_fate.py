"""What becomes of running statistics in a federation: who sends them, and what the server makes of them."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.rules import CoordinateRule
from fedguard.contracts.statistics import Normalization, StatisticsLayout


class StatisticsFate(Algorithm):
    """What becomes of the running statistics of clients.

    As long as layers normalize by the batch in training, the parameters of a training do not depend on the fate: only their
    evaluation does.
    """

    kind: ClassVar[str] = "statistics"
    #: By what the layers normalize
    normalization: ClassVar[Normalization] = "running"
    #: Whether clients compute statistics under the new model, by one more pass over their examples, instead of sending those
    #: that they have after training
    fresh: ClassVar[bool] = False
    #: Whether each client keeps its own, so that there is no global model that could be evaluated
    local: ClassVar[bool] = False
    #: What of the clients' variances adds up to the global one, so that a masked sum is enough: they themselves, or second
    #: moments; None if the server needs each client's own
    adds_up: ClassVar[Literal["variances", "squares"] | None] = None
    #: Whether a client counts by its number of examples where statistics add up
    by_samples: ClassVar[bool] = True
    #: The rule by which the server combines statistics, coordinate by coordinate; None for `combine`
    rule: CoordinateRule | None = None
    #: What it does, a sentence for `fedguard check`
    words: ClassVar[str]

    @property
    def sends(self) -> bool:
        """Whether clients send statistics beside their updates."""
        return self.normalization == "running" and not self.local

    def combine(self, rows: Tensor, samples: Tensor, layout: StatisticsLayout) -> Tensor:
        """float32 ``[s]``: the global statistics; not called for a fate that sends nothing.

        Args:
            rows: float32 ``[n, s]``: the statistics of the clients whose update arrived, all finite, no variance below 0.
            samples: float64 ``[n]``: the number of examples that each of them claims.
        """
        raise NotImplementedError
