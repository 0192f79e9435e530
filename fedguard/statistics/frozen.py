"""Constant statistics: layers normalize each example by the statistics of the first model."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import StatisticsFate


@dataclass(frozen=True, kw_only=True)
class Frozen(StatisticsFate):
    """Layers normalize by constants, in training and at test time.

    $y = w (x - m) / sqrt(v + eps) + b$. They are the initial statistics of the network, for
    torch's layers m = 0 and v = 1. Each example is then computed by itself, and nobody sends statistics. A deep network may not
    train at all in this way.
    """

    name = "frozen"
    source = "layers in evaluation mode, as in FixBN: Zhong et al., Making Batch Normalization Great in Federated Deep Learning"
    words = "layers normalize by the network's initial statistics, which nothing changes, in training and at test time"
    normalization = "constant"
