"""The reference beside the controls: the server trained alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedguard.config import PlannedCell
from fedguard.contracts import Gram, Pipeline, Protocol, RuleContext, Sight, WeightRule


def references(cell: PlannedCell, train: Callable[[PlannedCell], float]) -> dict[str, float | None]:
    """Final accuracies of reference trainings; cells with the same data, seed and settings share them.

    Args:
        train: trains a cell and returns its final accuracy.

    Returns:
        root_only: the server trains alone on its root data, one update per round; None without root data.
    """
    return {"root_only": train(_alone(cell)) if cell.config.server.root_data > 0 else None}


def _alone(cell: PlannedCell) -> PlannedCell:
    """The cell with one nominal client and no masks; the update of the client gets no weight.

    Additions of an algorithm to FedAvg are between clients, so the server trains without them.
    """
    changes: dict[str, Any] = {"per_round": 1, "sampling": "fixed", "schedule": (), "malicious": 0, "assumed_f": None}
    algorithm = cell.algorithm if cell.algorithm.only_updates else cell.known.build("algorithm", "fedavg")
    clients = dataclasses.replace(cell.config.clients, **changes)
    config = cell.config.model_copy(update={"clients": clients, "protocol": Protocol()})
    return cell.with_parts(
        config=config,
        algorithm=algorithm,
        masking=cell.known.build("masking", "none"),
        noise=cell.known.build("noise", "none"),
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
