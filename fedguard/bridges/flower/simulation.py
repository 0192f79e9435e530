"""An app in Flower's own simulation: its nodes run in Ray actors, which are processes of this machine."""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import requires
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedguard.bridges.flower.app import FlowerApp, ImportedClientApp
from fedguard.bridges.flower.node import SeededClientApp
from fedguard.bridges.flower.serving import serve_app
from fedguard.bridges.jobs import TrialRequest
from fedguard.errors import ConfigError


def require_ray() -> None:
    """Raises ConfigError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        pin = next((one.split(";")[0].strip() for one in requires("flwr") or () if one.startswith("ray")), "ray")
        raise ConfigError(f"engine: simulation needs {pin}, and Ray is not installed. pip install 'flwr[simulation]'")


def run_simulated(asked: TrialRequest) -> dict[str, Any]:
    """Run a trial in Flower's simulation, with one core for each actor.

    Raises:
        ConfigError: Ray is not installed, or an error of `serve_app`.
    """
    require_ray()
    from flwr.simulation import run_simulation

    read, told = FlowerApp.read(asked.app, asked.settings), list[dict[str, Any]]()
    failed: list[Exception] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            told.append(serve_app(asked, read, grid, context))
        except Exception as error:
            # Raised below: `run_simulation` runs the server in a thread, and may end with an error of its own instead
            failed.append(error)

    # Ray's behavior to come, which its warning asks for: with no GPU requested, visible devices are left as they are
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    run_simulation(
        app,
        SeededClientApp(ImportedClientApp(read), asked.seed),
        num_supernodes=asked.nodes,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {
                "address": "local",  # and not a cluster that happens to run here
                "num_cpus": min(asked.nodes, os.cpu_count() or 1),
                "include_dashboard": False,
            },
        },
    )
    if failed:
        raise failed[0]
    return told[0]
