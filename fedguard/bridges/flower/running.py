"""How a Flower app is read, rehearsed and run: what `fedguard.bridges.trial` asks of each framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedguard.bridges.flower.app import FlowerApp
from fedguard.bridges.flower.deployment import require_deployable, run_deployed
from fedguard.bridges.flower.inline import run_inline
from fedguard.bridges.flower.serving import serve_app
from fedguard.bridges.flower.simulation import require_ray, run_simulated
from fedguard.bridges.jobs import TrialRequest
from fedguard.bridges.observer import check


def read(asked: TrialRequest) -> FlowerApp:
    """The app with its run's configuration."""
    return FlowerApp.read(asked.app, asked.settings)


def rehearse(asked: TrialRequest) -> None:
    """Check that an app can be imported, and that its engine is installed.

    Raises:
        ConfigError: the app cannot be imported, or the engine is not installed.
    """
    app = read(asked)
    app.load()
    if asked.observer is not None:
        check(asked.observer, app, asked.nodes, asked.seed)
    if asked.engine == "deployment":
        require_deployable(read(asked))
    if asked.engine == "simulation":
        require_ray()


def _inline(asked: TrialRequest) -> dict[str, Any]:
    app, told = read(asked), list[dict[str, Any]]()
    grid = run_inline(
        lambda grid, context: told.append(serve_app(asked, app, grid, context, grid.partitions)),
        app.client_app(),
        nodes=asked.nodes,
        config=app.config,
        seed=asked.seed,
    )
    return {**told[0], "raised": grid.raised}


#: Where a trial may run.
ENGINES: dict[str, Callable[[TrialRequest], dict[str, Any]]] = {
    "inline": _inline,
    "simulation": run_simulated,
    "deployment": run_deployed,
}
