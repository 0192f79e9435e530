"""`fedguard flower`: somebody's Flower app, attacked and defended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedguard.commands.app_check import (
    AsJson,
    Attacks,
    Defenses,
    Floor,
    Fresh,
    Metric,
    Seeds,
    SuiteFiles,
    matrix_of,
    parse_settings,
    run_check,
    write_suites,
)
from fedguard.commands.command import Command
from fedguard.commands.options import Force, Jobs, Store

app = typer.Typer(name="flower", help="Attack and defend a Flower app.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Attack and defend a Flower app."""


@app.command(cls=Command)
def check(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="The folder of the app's pyproject.toml.")],
    attack: Attacks = None,
    defense: Defenses = None,
    malicious: Annotated[int, typer.Option("--malicious", "-f", min=0, help="How many nodes are.")] = 1,
    clients: Annotated[int, typer.Option("--clients", "-n", min=2, help="How many nodes there are.")] = 10,
    seeds: Seeds = 3,
    app_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Over the app's run configuration. Repeatable."),
    ] = None,
    app_metric: Metric = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="inline|simulation|deployment",
            help="One process; Flower's simulation, on Ray; or a SuperLink and SuperNodes on this machine.",
        ),
    ] = "inline",
    floor: Floor = None,
    name: Annotated[str | None, typer.Option(help="Of the run. Default: the app's folder.")] = None,
    to: SuiteFiles = None,
    force: Force = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
    jobs: Jobs = None,
    store: Store = Path("runs"),
) -> None:
    """Run a Flower app under attacks, with its own strategy and with rules of the catalog, and compare the accuracies.

    The app is not changed. Some of its nodes are malicious, and rules replace the aggregation of replies. Nodes have
    `partition-id` and `num-partitions`, as in Flower's simulation. The app itself measures its accuracy.

    The result is a suite with an `app`, which `fedguard run` and `fedguard gate` accept; `--to` writes it. Stored trials run
    again only if the app's code has changed.

    Exit code 0; 2 for errors in app or command before anything runs; 3 if a defended cell is below the floor; 4 if trials
    failed.
    """
    over = parse_settings(app_config or (), "--app-config")
    asked: dict[str, Any] = {
        "name": name or folder.resolve().name,
        "app": {"folder": str(folder), "set": over, "metric": app_metric, "engine": engine},
        "clients": {"total": clients, "malicious": malicious},
        "matrix": matrix_of(attack, defense),
        "seeds": seeds,
    }
    if to:
        write_suites(asked, to, force, folder / "pyproject.toml", "a Flower app's project file")
    else:
        run_check(asked, folder, store=store, jobs=jobs, fresh=fresh, as_json=as_json, floor=floor)
