"""What a figure is to be compared with beside the four corners: the honest clients alone, and the server alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedguard.config import Cell
from fedguard.contracts import DataView, Gram, Pipeline, PoisonAttack, Protocol, RuleContext, Sight, WeightRule
from fedguard.registry import registry

#: Trains a cell with one seed and returns its final accuracy.
Train = Callable[[Cell, int], float]

_done: dict[tuple[str, int], float] = {}


def references(cell: Cell, seed: int, train: Train) -> dict[str, float | None]:
    """Final accuracies of two trainings with the same data, seed and settings; all cells that share these share them.

    Returns:
        oracle_mean: the mean, while the colluders stay away: what a defense could reach that knew who is hostile; None
        without an attack. root_only: the server trains alone on its root data, one update a round; None where it has none.

    Each is trained once in a process, and kept.
    """
    root = cell.config.server.root_data > 0
    return {
        "oracle_mean": _final(_oracle(cell), seed, train) if cell.attack else None,
        "root_only": _final(_alone(cell), seed, train) if root else None,
    }


def _final(cell: Cell, seed: int, train: Train) -> float:
    if (cell.id, seed) not in _done:
        _done[cell.id, seed] = train(cell, seed)
    return _done[cell.id, seed]


def _oracle(cell: Cell) -> Cell:
    """Without groups and tests, for which fewer clients could be too few; noise stays."""
    protocol = cell.config.protocol.undefended
    if protocol.masked:
        protocol = dataclasses.replace(protocol, secure_aggregation="full")
    config = _with_clients(cell, {"assumed_f": None}).model_copy(update={"protocol": protocol})
    return dataclasses.replace(
        cell, config=config, attack=_Absent(), ensemble=None, pipeline=registry().pipeline("mean")
    )


def _alone(cell: Cell) -> Cell:
    """One client takes part for form's sake, without masks; its update gets no weight.

    What an algorithm adds to FedAvg is between clients, so the server trains without it.
    """
    changes = {"per_round": 1, "sampling": "fixed", "schedule": (), "malicious": 0, "assumed_f": None}
    training = cell.config.training
    if training.algorithm not in ("fedsgd", "fedavg", "fedprox"):
        training = dataclasses.replace(training, algorithm="fedavg", alpha=None)
    config = _with_clients(cell, changes).model_copy(update={"protocol": Protocol(), "training": training})
    return dataclasses.replace(cell, config=config, attack=None, ensemble=None, pipeline=Pipeline((_RootOnly(),)))


def _with_clients(cell: Cell, changes: Mapping[str, Any]) -> Any:
    return cell.config.model_copy(update={"clients": cell.config.clients.model_copy(update=changes)})


class _Absent(PoisonAttack):
    """The colluders send nothing."""

    name = "absent"
    needs = (Sight.NOTHING,)

    def silent(self, view: DataView) -> bool:
        return True


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
