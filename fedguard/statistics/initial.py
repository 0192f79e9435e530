"""Running statistics that stay at their initial values at the server, whatever clients send."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import StatisticsFate, StatisticsLayout


@dataclass(frozen=True, kw_only=True)
class Initial(StatisticsFate):
    """Layers normalize by the batch in training, and by the network's initial statistics at test time.

    For torch's layers m = 0 and v = 1. This is what a server evaluates that averages parameters only and takes buffers from a
    new network. Unlike ``frozen``, training does not use these statistics, so that the parameters do not fit them.
    """

    name = "initial"
    source = "a server that moves nn.Module.parameters() alone"
    words = "the server moves parameters alone, so that the model is evaluated with the network's initial statistics"

    def combine(self, rows: Tensor, samples: Tensor, layout: StatisticsLayout) -> Tensor:
        return layout.initial.to(rows)
