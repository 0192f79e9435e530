"""`fedguard flower`: somebody's Flower app, attacked and defended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedguard.commands.command import Command
from fedguard.commands.options import Force, Jobs, Store, console, fail, files_of, print_json
from fedguard.errors import ConfigError

if TYPE_CHECKING:
    from fedguard.bench.results.run import Run

app = typer.Typer(name="flower", help="Attack and defend a Flower app.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Attack and defend a Flower app."""


@app.command(cls=Command)
def check(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="The folder of the app's pyproject.toml.")],
    attack: Annotated[
        list[str] | None, typer.Option("--attack", "-a", help="Such as 'ipm(tau=5)'. Repeatable.")
    ] = None,
    defense: Annotated[
        list[str] | None, typer.Option("--defense", "-d", help="Such as 'nnm >> trimmed_mean'. Repeatable.")
    ] = None,
    malicious: Annotated[int, typer.Option("--malicious", "-f", min=0, help="How many nodes are.")] = 1,
    clients: Annotated[int, typer.Option("--clients", "-n", min=2, help="How many nodes there are.")] = 10,
    seeds: Annotated[int, typer.Option(min=1, help="How often each cell runs.")] = 3,
    app_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Over the app's run configuration. Repeatable."),
    ] = None,
    app_metric: Annotated[
        str | None, typer.Option(help="How the app calls its accuracy. Default: what has `acc` in its name.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="inline|simulation|deployment",
            help="One process; Flower's simulation, on Ray; or a SuperLink and SuperNodes on this machine.",
        ),
    ] = "inline",
    floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit 3 where a defended cell's accuracy is below.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the run. Default: the app's folder.")] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.yaml", help="Write what would run as a suite file, and stop. Repeatable."),
    ] = None,
    force: Force = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything again, whatever is stored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The rows of the matrix as JSON.")] = False,
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
    import yaml

    from fedguard import api
    from fedguard.bench.running.progress import Listener, for_console
    from fedguard.config import Document

    asked: dict[str, Any] = {
        "name": name or folder.resolve().name,
        "app": {"folder": str(folder), "set": _parse_config(app_config or ()), "metric": app_metric, "engine": engine},
        "clients": {"total": clients, "malicious": malicious},
        "matrix": {
            "attack": list(dict.fromkeys(["none", *(attack or ())])),
            "defense": list(dict.fromkeys([OWN, *(defense or ())])),
        },
        "seeds": seeds,
    }
    if to:
        api.lay_out(asked)
        if not (project := folder / "pyproject.toml").is_file():
            raise ConfigError(f"{project}: expected a Flower app's project file; there is none. Name the app's folder.")
        for _, suite in files_of(to, ("yaml",), force):
            try:
                suite.write_text(yaml.safe_dump(asked, sort_keys=False), encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"{suite}: cannot be written: {error.strerror}.") from None
            typer.echo(f"{suite} written. Next: fedguard run {suite}")
        return
    try:
        run = api.run(
            Document(asked, source=str(folder.resolve())),
            store=store,
            jobs=jobs,
            fresh=fresh,
            listener=Listener() if as_json else for_console(console),
        )
    except KeyboardInterrupt as interruption:  # typer would swallow what it says
        fail(str(interruption) or "interrupted.", 130)
    if as_json:
        print_json(run.rows())
    else:
        console.print(run.table())
        console.print(
            f"\nfedguard show {run.name}, fedguard report {run.name}, fedguard dashboard: all of it.", highlight=False
        )
    _warn_lost_nodes(run)
    if floor is not None and (lost := list(below(run, floor))):
        for line in lost:
            typer.echo(line, err=True)
        raise typer.Exit(3)
    if run.failures:
        fail(f"{len(run.failures)} of {len(run.records)} trials failed: {run.failures[0].reason}", 4)


def _warn_lost_nodes(run: Run) -> None:
    """Name trials that lost nodes: what is shown of them is not of the whole federation."""
    for record in run.ran.values():
        for flag in record["flags"]:
            if flag["flag"] == "lost_nodes":  # what is shown is not of the whole federation
                typer.echo(f"{record['label']}, seed {record['seed']}: {flag['said']}", err=True)


def _parse_config(settings: Sequence[str]) -> dict[str, Any]:
    """The settings ``KEY=VALUE`` of an app's run configuration; values are YAML."""
    import yaml

    over: dict[str, Any] = {}
    for one in settings:
        key, equals, value = one.partition("=")
        if not equals or not key:
            fail(f"--app-config {one!r}: expected KEY=VALUE, as in --app-config num-server-rounds=5.", 2)
        try:
            over[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            fail(f"--app-config {one!r}: expected a value in YAML, such as 5, true or 'a text'. Quote the value.", 2)
    return over


#: A suite's name for the defense that is the app's own strategy
OWN = "own"


def below(run: Run, floor: float) -> Iterator[str]:
    """Defended cells with a mean accuracy below a floor, in words; and those that did not run."""
    for line in run.manifest["positions"]:
        if line["swept"]["defense"] == OWN:
            continue
        found = [run.ran[line["cell"], seed] for seed in run.seeds if (line["cell"], seed) in run.ran]
        words = f"{line['swept']['attack']} against {line['swept']['defense']}"
        if not found:
            yield f"{words}: not judged, no trial ran"
        elif (mean := fmean(one["result"]["final_accuracy"] for one in found)) < floor:
            yield f"{words}: {100 * mean:.1f} %, below {100 * floor:.1f} %"
