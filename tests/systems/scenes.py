"""A small federation in simulated time, from the words of a suite to its reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.cells import PlannedCell
from fedguard.config.schema import CellConfig
from fedguard.contracts import RoundReport, Setup
from fedguard.registry import load_registry

#: All are equally fast: a message takes a second, and computing no time.
EVEN = {"compute": {"seconds": 0}, "link": {"latency": 1}}

USUAL: dict[str, Any] = {
    "task": {"data": "digits", "model": "softmax", "partition": "iid"},
    "clients": {"total": 6},
    "training": {"rounds": 4, "lr": 0.1, "local_epochs": 1, "batch_size": 32},
    "network": EVEN,
}


@cache
def _bench() -> Workbench:
    return Workbench()


def settings(architecture: Any = "server", **changes: Any) -> dict[str, Any]:
    """`USUAL` with some settings changed; those of clients, training and task one by one."""
    found = {**USUAL, **changes, "architecture": architecture}
    for section in ("clients", "training", "task"):
        found[section] = {**USUAL[section], **changes.get(section, {})}
    if "local_steps" in found["training"]:
        del found["training"]["local_epochs"]
    return found


def cell(architecture: Any = "server", **changes: Any) -> PlannedCell:
    return build_cell(CellConfig.model_validate(settings(architecture, **changes)), load_registry())


def scene(architecture: Any = "server", seed: int = 0, **changes: Any) -> tuple[PlannedCell, Setup]:
    made = cell(architecture, **changes)
    assert not made.verdict.reasons, made.verdict.reasons
    return made, set_up(made, seed, _bench().task(made, seed))


def reports(architecture: Any = "server", seed: int = 0, **changes: Any) -> Iterator[RoundReport]:
    made, setup = scene(architecture, seed, **changes)
    return made.architecture.run(setup)


def models(architecture: Any = "server", seed: int = 0, **changes: Any) -> Tensor:
    """float32 ``[rounds + 1, d]``: the model before the first round and after each."""
    return _trained(*scene(architecture, seed, **changes))


def models_of_common_noise(architecture: Any = "server", **changes: Any) -> Tensor:
    """As `models`, with noise for privacy that other cells of the seed have as well, which else is each cell's own."""
    made, setup = scene(architecture, **changes)
    return _trained(made, dataclasses.replace(setup, noise=setup.rng))


def _trained(made: PlannedCell, setup: Setup) -> Tensor:
    start = setup.task.initial_model(setup.rng.child("model"))
    return torch.stack([start, *(report.model.clone() for report in made.architecture.run(setup))])


def off(ours: Tensor, theirs: Tensor) -> float:
    """How far two trainings end apart, over the way that the second moved."""
    return float((ours[-1] - theirs[-1]).norm() / (theirs[-1] - theirs[0]).norm())
