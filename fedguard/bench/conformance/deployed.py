"""A server and clients as a deployed Flower app: SuperLink, SuperNodes and each training are separate processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.systems.learner import Learner
from fedguard.bench.conformance import remote
from fedguard.bench.conformance.engine import TrainingOutcome
from fedguard.bench.conformance.messages import client_app, server_app
from fedguard.bench.conformance.remote import Key
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Architecture, Setup
from fedguard.errors import ConfigError, FedGuardError, MissingExtra
from fedguard.registry import load_registry

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    from fedguard.bridges.flower.deployment import FlowerDeployment

#: What a run is asked, what it tells, and the model that it comes to: files of its own folder.
JOB, TOLD, FOUND = "job.json", "told.json", "found.npy"
#: The app: a module beside the project file that Flower asks for.
MODULE = "fedguard_conform"
_APP = """from pathlib import Path

from fedguard.bench.conformance.deployed import client_side, server_side

server = server_side(Path({home!r}))
client = client_side(Path({home!r}))
"""
_PROJECT = f"""[project]
name = "fedguard-conform"
version = "1.0.0"
description = "A training of fedguard conform."
license = {{ file = "LICENSE" }}
dependencies = ["flwr>=1.41,<1.43"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedguard"
fab-format-version = 1
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "{MODULE}:server"
clientapp = "{MODULE}:client"

[tool.flwr.app.config]
"""


class DeploymentEngine:
    """Engine for synchronous and asynchronous servers, which process answers as they arrive.

    Args:
        on: a federation that runs already; by default one of its own for all cells, which ends with them.
    """

    name = "deployment"
    runs = remote.RUNS

    def __init__(self, on: FlowerDeployment | None = None) -> None:
        self._on = on

    def why_not(self, architecture: Architecture) -> str | None:
        if isinstance(architecture, Learner):
            return (
                "an actor's environments go on from one rollout to the next, and a SuperNode starts a process for each "
                "message. Take --engine ray."
            )
        return remote.why_not(self.name, architecture)

    def run(self, cells: Sequence[PlannedCell], seed: int) -> list[TrainingOutcome]:
        try:
            from fedguard.bridges.flower.deployment import FlowerDeployment
        except ImportError:
            raise MissingExtra("--engine deployment", "flwr", "flower") from None
        if self._on is not None:
            return [_run(self._on, cell, seed) for cell in cells]
        with FlowerDeployment(cells[0].config.clients.total, aloud=False) as federation:
            return [_run(federation, cell, seed) for cell in cells]

    def simulate_cell(self, cell: PlannedCell, setup: Setup, order: tuple[Key, ...] | None) -> Tensor:
        return remote.simulate_in_order(cell, setup, order)


def _run(federation: FlowerDeployment, cell: PlannedCell, seed: int) -> TrainingOutcome:
    home = federation.place()
    app = home / "app"
    app.mkdir()
    (app / f"{MODULE}.py").write_text(_APP.format(home=str(home)))
    (app / "pyproject.toml").write_text(_PROJECT)
    (app / "LICENSE").write_text("Of FedGuard.\n")
    job = {"cell": cell.canonical, "seed": seed, "clients": list(federation.partitions.items())}
    (home / JOB).write_text(json.dumps(job))
    told = federation.run(app, home / TOLD)
    if (why := told["why"]) is not None:
        died = "".join(f" The process of node {number} {how}." for number, how in federation.describe_exits().items())
        raise ConfigError(f"{why}{died}")
    order = told["order"]
    models = torch.from_numpy(np.load(home / FOUND, allow_pickle=False))
    return TrainingOutcome(models, told["seconds"], tuple((client, turn) for client, turn in order) if order else None)


def server_side(home: Path) -> ServerApp:
    """The server app that a SuperLink runs. It writes its files at the end, even after an error."""
    from flwr.serverapp import ServerApp

    app, job = ServerApp(), _job(home)

    @app.main()
    def main(grid: Any, context: Any) -> None:
        told: dict[str, Any] = {"why": "conform: the server's process was ended.", "seconds": None, "order": None}

        def save_outcome(outcome: TrainingOutcome) -> None:
            np.save(home / FOUND, outcome.models.numpy(), allow_pickle=False)
            told.update(why=None, seconds=outcome.seconds, order=outcome.order)

        try:
            cell = build_cell(CellConfig.model_validate(job["cell"]), load_registry())
            server_app(cell, 0, job["seed"], save_outcome, dict(job["clients"]))(grid, context)
        except FedGuardError as error:
            told["why"] = str(error)
        except Exception as error:
            told["why"] = f"conform: the server raised: {type(error).__name__}: {error}"
            raise
        finally:
            (home / f"{TOLD}.new").write_text(json.dumps(told))
            (home / f"{TOLD}.new").replace(home / TOLD)

    return app


def client_side(home: Path) -> ClientApp:
    """The client app that a SuperNode runs, in one process per training."""
    job = _job(home)
    return client_app(lambda _: dict(job["cell"]), job["seed"])


def _job(home: Path) -> Mapping[str, Any]:
    return dict(json.loads((home / JOB).read_text()))
