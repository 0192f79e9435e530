"""A few actors on CartPole, from the words of a suite to their reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.cells import PlannedCell
from fedguard.config.schema import CellConfig
from fedguard.contracts import RoundReport, Setup
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.environments.cartpole import CartPole
from fedguard.tasks.models.mlp import MLP
from fedguard.tasks.playing import EnvironmentTask

USUAL: dict[str, Any] = {
    "task": {"data": "cartpole(copies=3)", "model": "mlp(hidden=[8])"},
    "clients": {"total": 4},
    "training": {"algorithm": "actor_critic(t_max=4)", "rounds": 6, "lr": 0.05},
    "evaluation": {"every": 6},
}


def settings(architecture: str, **changes: Any) -> dict[str, Any]:
    """`USUAL` with some settings changed; those of its sections one by one."""
    found = {**USUAL, **changes, "architecture": architecture}
    for section, usual in USUAL.items():
        found[section] = {**usual, **changes.get(section, {})}
    return found


def cell(architecture: str, **changes: Any) -> PlannedCell:
    return build_cell(CellConfig.model_validate(settings(architecture, **changes)), load_registry())


def scene(architecture: str, seed: int = 0, **changes: Any) -> tuple[PlannedCell, Setup]:
    made = cell(architecture, **changes)
    assert not made.verdict.reasons, made.verdict.reasons
    return made, set_up(made, seed, Workbench().task(made, seed))


def reports(architecture: str, seed: int = 0, **changes: Any) -> Iterator[RoundReport]:
    made, setup = scene(architecture, seed, **changes)
    return made.architecture.run(setup)


def playing() -> EnvironmentTask:
    """Three actors and a small network."""
    return EnvironmentTask.build_task(CartPole(copies=3), MLP(hidden=(8,)), 3, Rng(0))
