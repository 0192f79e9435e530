"""`fedguard flower`: somebody's Flower app, attacked and defended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedguard.commands.options import Jobs, Store, console, fail, print_json

app = typer.Typer(name="flower", help="Attack and defend a Flower app.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Attack and defend a Flower app."""


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="The folder of the app's pyproject.toml.")],
    attack: Annotated[
        list[str] | None, typer.Option("--attack", "-a", help="Such as 'ipm(tau=5)'. Repeatable.")
    ] = None,
    defense: Annotated[
        list[str] | None, typer.Option("--defense", "-d", help="Such as 'nnm >> trimmed_mean'. Repeatable.")
    ] = None,
    malicious: Annotated[int, typer.Option("--malicious", "-f", min=0, help="How many nodes are.")] = 1,
    nodes: Annotated[int, typer.Option(min=2, help="How many nodes there are.")] = 10,
    seeds: Annotated[int, typer.Option(min=1, help="How often each cell runs.")] = 3,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Over the app's run configuration. Repeatable."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="How the app calls its accuracy. Default: what has `acc` in its name.")
    ] = None,
    floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit 3 where a defended cell's accuracy is below.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the run. Default: the app's folder.")] = None,
    fresh: Annotated[bool, typer.Option("--no-cache", help="Run everything again, whatever is stored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The rows of the matrix as JSON.")] = False,
    jobs: Jobs = None,
    store: Store = Path("runs"),
) -> None:
    """Run a Flower app under attacks, with its own strategy and with rules of the catalogue, and say what is left of it.

    The app stays as it is. Its server app, strategy and client apps run in one process for each trial, with Flower's own
    messages between them; some nodes are malicious, and rules stand where replies come in. Nodes have `partition-id` and
    `num-partitions`, as in Flower's simulation. Accuracy is what the app measures itself.

    The run lies in the store like a suite's: `fedguard show`, `report`, `compare`, `export` and `dashboard` read it. What is
    stored runs again only where the app's code has changed.

    Exit code 0; 2 for what the app or the command lacks; 3 where a defended cell is below the floor; 4 where trials failed.
    """
    try:
        from fedguard.flower.check import OWN, Check, below
    except ImportError as error:
        if error.name is None or not error.name.startswith("flwr"):
            raise
        fail("flower: expected Flower 1.41 or 1.42; it is not installed. pip install 'fedguard[flower]'", 2)
    import yaml

    from fedguard.bench.records.store import RunFolder

    over: dict[str, Any] = {}
    for one in settings or ():
        key, equals, value = one.partition("=")
        if not equals or not key:
            fail(f"--set {one!r}: expected KEY=VALUE, as in --set num-server-rounds=5.", 2)
        over[key] = yaml.safe_load(value)
    asked = Check(folder, attack or (), defense or (), malicious, nodes, seeds, over, metric)
    progress = Console(stderr=True)
    with progress.status("first trial") as status:

        def after(done: int, total: int, what: str) -> None:
            if progress.is_terminal:
                status.update(f"{done} of {total}: {what}")
            else:
                typer.echo(f"{done} of {total}: {what}", err=True)

        run = asked.run(RunFolder(store / (name or folder.resolve().name)), jobs=jobs, fresh=fresh, after=after)
    if as_json:
        print_json(run.rows())
    else:
        console.print(run.table())
        console.print(
            f"\nfedguard show {run.name}, fedguard report {run.name}, fedguard dashboard: all of it.", highlight=False
        )
    if floor is not None and (lost := [line for line in below(run, floor) if f"against {OWN}" not in line]):
        for line in lost:
            typer.echo(line, err=True)
        raise typer.Exit(3)
    failed = [record for record in run.records.values() if record["status"] == "failed"]
    if failed:
        fail(f"{len(failed)} of {len(run.records)} trials failed: {failed[0]['reason']}", 4)
