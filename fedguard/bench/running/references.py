"""What a figure is to be compared with beside the corners: the server alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedguard.config import Cell
from fedguard.config.sections import ProtocolSection
from fedguard.contracts import Gram, Pipeline, Protocol, RuleContext, Sight, WeightRule


def references(cell: Cell, train: Callable[[Cell], float]) -> dict[str, float | None]:
    """Final accuracies of trainings with the same data, seed and settings; all cells that share these share them.

    Args:
        train: a cell, and return its final accuracy.

    Returns:
        root_only: the server trains alone on its root data, one update a round; None where it has none.
    """
    return {"root_only": train(_alone(cell)) if cell.config.server.root_data > 0 else None}


def _alone(cell: Cell) -> Cell:
    """One client takes part for form's sake, without masks; its update gets no weight.

    What an algorithm adds to FedAvg is between clients, so the server trains without it.
    """
    changes = {"per_round": 1, "sampling": "fixed", "schedule": (), "malicious": 0, "assumed_f": None}
    training = dataclasses.replace(cell.training, algorithm=cell.training.algorithm.alone)
    clients = cell.config.clients.model_copy(update=changes)
    config = cell.config.model_copy(update={"clients": clients, "protocol": ProtocolSection()})
    return dataclasses.replace(
        cell,
        config=config,
        training=training,
        protocol=Protocol(),
        attack=None,
        ensemble=None,
        pipeline=Pipeline((_RootUpdateRule(),)),
    )


class _RootUpdateRule(WeightRule):
    """The server's own update."""

    name = "root_only"
    needs = (Sight.ROOT_DATA,)

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {"root": context.root}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        weights = torch.zeros(gram.n + 1, dtype=torch.float64)
        weights[-1] = 1
        return weights
