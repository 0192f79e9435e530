"""Edge-case backdoor (Wang et al., NeurIPS 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import Examples, ProperFraction, Trigger


@dataclass(frozen=True, kw_only=True)
class EdgeCase(Trigger):
    """Inputs from the tail of their class, which honest clients hardly have. Nothing is added to them.

    An example is an edge case if it is among the share ``tail`` of its class with the largest distance from the class mean,
    at least one example. Distances are taken among the examples at hand: all malicious clients' examples for the training,
    the test set for measuring the backdoor. The source collects edge cases from outside the data set, so its honest clients
    have none. Here the tail is part of the data set, so honest clients have their share of it.

    Args:
        tail: share of each class that counts as its tail, in (0, 1).
        source_class: the only class with a tail; None means each.
    """

    name = "edge_case"
    source = "Wang et al., Attack of the Tails: Yes, You Really Can Backdoor Federated Learning, NeurIPS 2020"

    tail: ProperFraction = 0.1
    source_class: int | None = None

    def selects(self, examples: Examples, value_range: tuple[float, float]) -> Tensor:
        chosen = torch.zeros(len(examples), dtype=torch.bool)
        for label in sorted(set(examples.y.tolist())):
            if self.source_class not in (None, label):
                continue
            (rows,) = (examples.y == label).nonzero(as_tuple=True)
            x = examples.x[rows].flatten(1).double()
            distance = (x - x.mean(0)).norm(dim=1)
            farthest = distance.topk(max(1, round(self.tail * len(rows)))).values
            chosen[rows] = distance >= farthest[-1]
        return chosen

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        return x.clone()
