"""Decentralised averaging on the complete graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fedguard.contracts import Architecture, Exposure, RoundReport, Setup, Sight


@dataclass(frozen=True, kw_only=True)
class Averaging(Architecture):
    """$x_i <- (1 - k) y_i + k mean_j y_j$ with $y_i = x_i + u_i$, where u_i is what client i moves by from its own $x_i$.

    Args:
        mixing: k.
    """

    name = "averaging"
    exposes = Exposure(server=Sight.SUM, clients=Sight.OWN_DATA | Sight.MODEL)

    mixing: float = 1.0

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        n = setup.participation.total
        models = setup.task.initial_model(setup.rng.child("model")).repeat(n, 1)
        for round in range(1, setup.training.rounds + 1):
            moved, rng = torch.empty_like(models), setup.rng.child("round", round)
            models = models + setup.task.local_updates(models, range(n), setup.local_plan, rng, moved)
            models = (1 - self.mixing) * models + self.mixing * models.mean(0)
            yield RoundReport(
                round=round,
                model=models.mean(0),
                clients=tuple(range(n)),
                evaluation=setup.task.evaluate(models.mean(0)),
            )
