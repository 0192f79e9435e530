"""`fedguard nvflare`: somebody's NVFlare job, attacked and defended."""

from __future__ import annotations

import json
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
    SuiteFiles,
    matrix_of,
    parse_settings,
    run_check,
    write_suites,
)
from fedguard.commands.command import Command
from fedguard.commands.options import Force, Jobs, Store
from fedguard.errors import ConfigError

app = typer.Typer(name="nvflare", help="Attack and defend an NVFlare job.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Attack and defend an NVFlare job."""


@app.command(cls=Command)
def check(
    folder: Annotated[Path, typer.Argument(metavar="JOB", help="The folder of the job's meta.json.")],
    attack: Attacks = None,
    defense: Defenses = None,
    number: Annotated[
        int | None, typer.Option("-f", min=0, help="How many sites are malicious. Default: those named, or 1.")
    ] = None,
    malicious: Annotated[
        list[str] | None,
        typer.Option("--malicious", metavar="SITE", help="A malicious site by name, such as site-1. Repeatable."),
    ] = None,
    sites: Annotated[
        int | None, typer.Option("--sites", "-n", min=2, help="How many sites there are. Default: as the job says.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How often each cell runs. A trial takes a minute or two.")] = 1,
    app_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Over the arguments of the job's controller. Repeatable."),
    ] = None,
    app_metric: Metric = None,
    floor: Floor = None,
    name: Annotated[str | None, typer.Option(help="Of the run. Default: the job's folder.")] = None,
    to: SuiteFiles = None,
    force: Force = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
    jobs: Jobs = None,
    store: Store = Path("runs"),
) -> None:
    """Run an NVFlare job under attacks, with its own aggregation and with rules of the catalog, and compare the accuracies.

    The job's folder is not changed: a copy runs in NVFlare's simulator, a process for each site, with a subclass of its
    controller that attacks and aggregates. The sites measure the accuracy themselves. Jobs in which no server aggregates the
    sites' updates are refused.

    The result is a suite with an `app`, which `fedguard run` and `fedguard gate` accept; `--to` writes it. Stored trials run
    again only if the job's files have changed.

    Exit code 0; 2 for errors in job or command before anything runs; 3 if a defended cell is below the floor; 4 if trials
    failed.
    """
    over = parse_settings(app_config or (), "--app-config")
    total = sites or _count_sites(folder)
    told: dict[str, Any] = {"nvflare": str(folder), "sites": total, "set": over, "metric": app_metric}
    asked: dict[str, Any] = {
        "name": name or folder.resolve().name,
        "app": told | ({"malicious": malicious} if malicious else {}),
        "clients": {"total": total, "malicious": len(malicious or ["one"]) if number is None else number},
        "matrix": matrix_of(attack, defense),
        "seeds": seeds,
    }
    if to:
        write_suites(asked, to, force, folder / "meta.json", "an NVFlare job's meta.json")
    else:
        run_check(asked, folder, store=store, jobs=jobs, fresh=fresh, as_json=as_json, floor=floor)


def _count_sites(folder: Path) -> int:
    """The number of sites that a job deploys to, or that it waits for.

    Raises:
        ConfigError: there is no such job, or it does not say.
    """
    path = folder / "meta.json"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        named = {site for sites in told["deploy_map"].values() for site in sites} - {"server", "@ALL"}
        return int(len(named) or told["min_clients"])
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{path}: expected an NVFlare job's meta.json; {why}. Name the folder of a job.") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ConfigError(
            f"{path}: expected deploy_map with the names of sites, or min_clients; got neither. Say --sites."
        ) from None
