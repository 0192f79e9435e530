"""The round as the plain loop of examples/plain_loop.py trains it: nothing but torch."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor
from work import Task, serve

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from plain_loop import federate, get_flat


class PlainLoop:
    def __init__(self, task: Task) -> None:
        self._task, self._model = task, get_flat(task.module)
        self._shards = list(zip(task.x, task.y, strict=True))

    def run(self, rounds: int) -> None:
        def batches(_round: int, client: int) -> list[list[int]]:
            order = torch.randperm(len(self._task.y[client])).split(self._task.batch)
            return [batch.tolist() for batch in order]

        clients = range(len(self._shards))
        parts = (self._task.module, self._model, self._shards, rounds, lambda _round: clients, batches)
        self._model = federate(*parts, lr=self._task.lr)[-1]

    def model(self) -> dict[str, Tensor]:
        return {"flat": self._model}


if __name__ == "__main__":
    serve(PlainLoop)
