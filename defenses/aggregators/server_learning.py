"""Server learning (Mai, La and Zhang, 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, PositiveFloat, RuleContext, Sight, WeightRule


@dataclass(frozen=True, kw_only=True)
class ServerLearning(WeightRule):
    """The mean of the updates, and a step that the server learns from clean data of its own.

    $R(x) = (1/n) sum_i x_i + gamma g$ with g the server's update. In the source the server trains on from the new
    average. Here g starts from the model before the round, as the updates do, so that the two steps add up; this is the same
    to first order in the step size. The rule is meant for heterogeneous data and leaves no update out: it needs only the sum,
    and one malicious client can move it anywhere.

    Args:
        weight: $gamma$, how much the server's update counts beside the mean; the source leaves its choice open.
    """

    name = "server_learning"
    source = "Mai, La and Zhang, Federated Learning with Server Learning for Non-IID Data, 2022"
    needs = (Sight.SUM | Sight.ROOT_DATA,)
    breakdown = "0: one update decides"
    cost = "one pass; one more client's training"
    grid: ClassVar = {"weight": (0.1, 0.3, 1.0, 3.0)}

    weight: PositiveFloat = 1.0

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {"root": context.root}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return torch.tensor([1 / gram.n] * gram.n + [self.weight], dtype=torch.float64)
