"""What the programs in this folder share: the task that `../peers.py` sets, and how it asks for rounds.

Each question is a line of JSON: {"task": FILE} sets up a training, {"rounds": K, "threads": T} trains (T may be null: as
many threads as torch takes), {"model": FILE} saves the global
model as one vector. Each is answered with an empty line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn


@dataclass
class Task:
    """One round: every client trains the global model for an epoch of SGD, and the mean of the results is the next one.

    Attributes:
        path: the file that it came from.
        module: the global model as it is at first.
        x: float32 ``[clients, images, 1, 28, 28]``.
        y: int64 ``[clients, images]``.
        lr: learning rate of the clients.
        batch: images in a batch.
    """

    path: str
    module: nn.Module
    x: Tensor
    y: Tensor
    lr: float
    batch: int


class Trainer(Protocol):
    def run(self, rounds: int) -> None: ...

    def model(self) -> dict[str, Tensor]:
        """The global model's state."""


def load(path: str) -> Task:
    return Task(path=path, **torch.load(path, weights_only=False))


def serve(build: Callable[[Task], Trainer], questions: Iterable[str] = sys.stdin) -> None:
    """Answer until there are no more questions. What a peer prints itself goes to the standard error."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        trainer, threads = None, torch.get_num_threads()
        for line in questions:
            question = json.loads(line)
            if "task" in question:
                trainer = build(load(question["task"]))
            elif "rounds" in question:
                torch.set_num_threads(question["threads"] or threads)
                trainer.run(question["rounds"])
            else:
                torch.save(torch.cat([value.reshape(-1) for value in trainer.model().values()]), question["model"])
            print(file=answers, flush=True)
