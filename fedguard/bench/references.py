"""What a figure is to be compared with beside the corners: the server alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedguard.config import Cell
from fedguard.contracts import Gram, Pipeline, Protocol, RuleContext, Sight, WeightRule

#: Trains a cell with one seed and returns its final accuracy.
Train = Callable[[Cell, int], float]

_done: dict[tuple[str, int], float] = {}


def references(cell: Cell, seed: int, train: Train) -> dict[str, float | None]:
    """Final accuracies of trainings with the same data, seed and settings; all cells that share these share them.

    Returns:
        root_only: the server trains alone on its root data, one update a round; None where it has none.

    Each is trained once in a process, and kept.
    """
    root = cell.config.server.root_data > 0
    return {"root_only": _final(_alone(cell), seed, train) if root else None}


def _final(cell: Cell, seed: int, train: Train) -> float:
    if (cell.id, seed) not in _done:
        _done[cell.id, seed] = train(cell, seed)
    return _done[cell.id, seed]


def _alone(cell: Cell) -> Cell:
    """One client takes part for form's sake, without masks; its update gets no weight.

    What an algorithm adds to FedAvg is between clients, so the server trains without it.
    """
    changes = {"per_round": 1, "sampling": "fixed", "schedule": (), "malicious": 0, "assumed_f": None}
    training = cell.config.training
    if training.algorithm not in ("fedsgd", "fedavg", "fedprox"):
        training = dataclasses.replace(training, algorithm="fedavg", alpha=None)
    clients = cell.config.clients.model_copy(update=changes)
    config = cell.config.model_copy(update={"clients": clients, "protocol": Protocol(), "training": training})
    return dataclasses.replace(cell, config=config, attack=None, ensemble=None, pipeline=Pipeline((_RootOnly(),)))


class _RootOnly(WeightRule):
    """The server's own update."""

    name = "root_only"
    needs = (Sight.ROOT_DATA,)

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {"root": context.root}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        weights = torch.zeros(gram.n + 1, dtype=torch.float64)
        weights[-1] = 1
        return weights
