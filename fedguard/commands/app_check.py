"""What `fedguard flower check` and `fedguard nvflare check` share: run the suite of an app, show it, judge it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedguard.commands.options import console, fail, files_of, print_json
from fedguard.errors import ConfigError

if TYPE_CHECKING:
    from fedguard.bench.results.run import Run

#: A suite's name for the defense that is the app's own strategy
OWN = "own"

Attacks = Annotated[list[str] | None, typer.Option("--attack", "-a", help="Such as 'ipm(tau=5)'. Repeatable.")]
Defenses = Annotated[
    list[str] | None, typer.Option("--defense", "-d", help="Such as 'nnm >> trimmed_mean'. Repeatable.")
]
Seeds = Annotated[int, typer.Option(min=1, help="How often each cell runs.")]
Metric = Annotated[
    str | None, typer.Option(help="How the app calls its accuracy. Default: what has `acc` in its name.")
]
Floor = Annotated[float | None, typer.Option(min=0, max=1, help="Exit 3 where a defended cell's accuracy is below.")]
SuiteFiles = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE.yaml", help="Write what would run as a suite file, and stop. Repeatable."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run everything again, whatever is stored.")]
AsJson = Annotated[bool, typer.Option("--json", help="The rows of the matrix as JSON.")]


def matrix_of(attack: Sequence[str] | None, defense: Sequence[str] | None) -> dict[str, list[str]]:
    """The attacks and defenses of a check: also without either."""
    return {
        "attack": list(dict.fromkeys(["none", *(attack or ())])),
        "defense": list(dict.fromkeys([OWN, *(defense or ())])),
    }


def write_suites(asked: dict[str, Any], to: list[str], force: bool, project: Path, what: str) -> None:
    """Write a suite to files.

    Args:
        project: the file that every app has, so that none is written for an app that is not there.
        what: whose file that is.
    """
    import yaml

    from fedguard import api

    api.lay_out(asked)
    if not project.is_file():
        raise ConfigError(f"{project}: expected {what}; there is none. Name the folder that it is in.")
    for _, suite in files_of(to, ("yaml",), force):
        try:
            suite.write_text(yaml.safe_dump(asked, sort_keys=False), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{suite}: cannot be written: {error.strerror}.") from None
        typer.echo(f"{suite} written. Next: fedguard run {suite}")


def run_check(
    asked: dict[str, Any],
    folder: Path,
    *,
    store: Path,
    jobs: int | None,
    fresh: bool,
    as_json: bool,
    floor: float | None,
) -> None:
    """Run the suite of an app, print its matrix, and end with an exit code: 3 below the floor, 4 if trials failed."""
    from fedguard import api
    from fedguard.bench.running.progress import Listener, for_console
    from fedguard.config import Document

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
            if flag["flag"] == "lost_nodes":
                typer.echo(f"{record['label']}, seed {record['seed']}: {flag['said']}", err=True)


def parse_settings(settings: Sequence[str], option: str) -> dict[str, Any]:
    """The values ``KEY=VALUE`` of a repeatable option; they are YAML."""
    import yaml

    over: dict[str, Any] = {}
    for one in settings:
        key, equals, value = one.partition("=")
        if not equals or not key:
            fail(f"{option} {one!r}: expected KEY=VALUE, as in {option} num-server-rounds=5.", 2)
        try:
            over[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            fail(f"{option} {one!r}: expected a value in YAML, such as 5, true or 'a text'. Quote the value.", 2)
    return over


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
