"""The round as FedGuard's cohort trains it."""

from __future__ import annotations

import torch
from torch import Tensor
from work import Task, serve

from fedguard.contracts import Examples, LocalPlan, Model
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.network import FlatNetwork


class Given(Model):
    """The task's module in place of a model of the registry."""

    name = "given"

    def __init__(self, task: Task) -> None:
        self._module = task.module

    def build(self, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        return self._module


class FedGuard:
    def __init__(self, task: Task) -> None:
        self._network = FlatNetwork(Given(task), tuple(task.x.shape[2:]), 10, Rng(0))
        self._cohort = Cohort(self._network, [Examples(*part) for part in zip(task.x, task.y, strict=True)])
        self._plan = LocalPlan(lr=task.lr, batch_size=task.batch, epochs=1)
        self._rng, self._model = Rng(0), self._network.flat.clone()
        self._updates, self._done = torch.empty(len(task.x), self._network.dim), 0

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._done += 1
            rng = self._rng.child("round", self._done)
            self._cohort.train(self._model, range(len(self._updates)), self._plan, rng, self._updates)
            self._model += self._updates.mean(0)

    def model(self) -> dict[str, Tensor]:
        return {"flat": self._model}


if __name__ == "__main__":
    serve(FedGuard)
