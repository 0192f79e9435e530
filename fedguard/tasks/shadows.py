"""Shadow models: what a federation would have learned from other examples, by what is public of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedguard.contracts import Examples, Task, Training
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.network import Network


@dataclass(frozen=True)
class Shadows:
    """Trains models on any sets of examples, all at once, from the federation's own initial model.

    One set of examples is one client here. It takes as many steps as a client of the federation does over all rounds, and
    each batch is the share of its examples that a client's batch is of the client's. Noise is left out. It holds nothing of
    the federation's examples, for it is handed to attackers.

    Attributes:
        network: of the federation's kind.
        initial: float32 ``[d]``.
        training: the federation's.
        usual: mean number of examples of a client.
    """

    network: Network = field(repr=False)
    initial: Tensor = field(repr=False)
    training: Training
    usual: float

    @classmethod
    def like(cls, network: Network, initial: Tensor, training: Training, task: Task) -> Shadows:
        """Shadows of a task's federation."""
        return cls(network, initial, training, sum(task.sizes) / len(task.sizes))

    def __call__(self, parts: Sequence[Examples], rng: Rng) -> Tensor:
        """float32 ``[k, d]``: one model for each of k sets of examples."""
        training, plan = self.training, self.training.plan()
        batch = min(plan.batch_size or self.usual, self.usual)
        steps = training.rounds * (plan.steps or (plan.epochs or 1) * math.ceil(self.usual / batch))
        lr = training.server_step if training.algorithm == "fedsgd" else plan.lr
        cohort = Cohort(self.network, parts)
        moved = torch.empty(len(parts), len(self.initial))
        for size in sorted(set(cohort.sizes)):
            alike = [number for number, other in enumerate(cohort.sizes) if other == size]
            local = replace(plan, lr=lr, epochs=None, steps=steps, batch_size=max(1, round(size * batch / self.usual)))
            out = torch.empty(len(alike), len(self.initial))
            cohort.train(self.initial, alike, local, rng, out)
            moved[alike] = out
        return self.initial + moved
