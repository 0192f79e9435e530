"""`fedguard gate` and `fedguard baseline`: has a change made anything worse?"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedguard.commands.options import (
    Address,
    EngineName,
    Force,
    Jobs,
    RunName,
    Store,
    console,
    engine_of,
    fail,
    files_of,
    load_run,
)
from fedguard.errors import ConfigError

if TYPE_CHECKING:
    from fedguard.bench.gate.baseline import Baseline
    from fedguard.bench.running.engines.ray import Ray
    from fedguard.bench.running.progress import Listener

app = typer.Typer(
    name="baseline",
    help="Baselines, which `fedguard gate` holds runs against: one JSON file each, made to be committed with the code.",
    no_args_is_help=True,
)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")]
BaselineFile = Annotated[Path, typer.Option("--baseline", "-b", metavar="FILE", help="The baseline.")]


class GateReason(StrEnum):
    """What else `fedguard gate` may fail on."""

    INCONCLUSIVE = "inconclusive"


def gate(
    run: RunName,
    baseline: BaselineFile,
    fail_on: Annotated[
        list[GateReason] | None, typer.Option(help="What is inconclusive counts as not judged: exit 4.")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Write the verdict as JUnit XML (.xml), SARIF (.sarif) or JSON (.json), or append it as Markdown (.md). The "
            "form of another name comes before it, as in `--to md:$GITHUB_STEP_SUMMARY`; md:- is the output. Repeatable.",
        ),
    ] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as JSON.")] = False,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    quiet: Quiet = False,
    store: Store = Path("runs"),
) -> None:
    """Judge a run against a baseline: has anything become worse?

    1. `fedguard run SUITE`, then `fedguard baseline save RUN --to baseline.json`, and commit the file. Once.

    2. After a change: `fedguard run SUITE --fresh`, then `fedguard gate RUN --baseline baseline.json`. In CI, always.

    A metric that is worse by more than its margin on the suite's seeds is tested again on fresh seeds. It counts only if they
    confirm it. Small drops that the whole suite shares count as well. Margins, floors and ceilings are in the suite, under
    `gate:`. Trainings execute the plug-ins of the suite, so judge only runs of suites that you would run.

    Exit code 0 if nothing is worse, 3 if something is or an epsilon does not hold, 4 if something cannot be judged: missing or
    failed cells, other settings, other data. The verdict is stored beside the run.
    """
    from fedguard.bench.gate.reports import junit as junit_of
    from fedguard.bench.gate.sarif import gate_sarif
    from fedguard.bench.gate.verdict_store import as_json as json_of
    from fedguard.bench.gate.work import gate as judge
    from fedguard.bench.pages.gate import describe_verdict
    from fedguard.bench.pages.markdown import render_markdown
    from fedguard.bench.pages.terminal import render_terminal

    forms = {"xml": junit_of, "md": lambda verdict: render_markdown(describe_verdict(verdict)), "json": json_of}
    forms["sarif"] = lambda verdict: gate_sarif(verdict, baseline, Path.cwd())
    files = files_of(to, tuple(forms), force, pipes=True, appended=("md",))
    if any(os.path.realpath(path) == os.path.realpath(baseline) for _, path in files):
        raise ConfigError(f"gate --to: expected another file than the baseline; got {baseline}. Choose another.")
    # If the verdict itself goes to standard output, nothing else may be printed there
    piped = as_json or any(str(path) == "-" for _, path in files)
    try:
        listener, workers = _listener(quiet or piped), engine_of(engine, address)
        verdict = judge(
            load_run(run, store), baseline, fail_on=fail_on or (), jobs=jobs, listener=listener, engine=workers
        )
    except KeyboardInterrupt as interruption:  # typer would swallow what it says
        fail(str(interruption) or "interrupted.", 130)
    if not quiet and not piped:
        console.print(render_terminal(describe_verdict(verdict)), highlight=False)
    for form, path in files:
        _write(path, forms[form](verdict), append=form == "md")
    if as_json:
        typer.echo(json_of(verdict), nl=False)
    raise typer.Exit(verdict.exit_code)


@app.command()
def save(
    run: RunName,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file, its history included.")] = False,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    quiet: Quiet = False,
    store: Store = Path("runs"),
) -> None:
    """Save a run as a baseline.

    Every cell is first run on `gate.confirm` more seeds (8, from 20000 on), in the run's folder `confirmation`. A gate uses
    them to confirm apparent drops. Run the same command again to go on after an interruption. Commit the file.
    """
    if to.exists() and not force:
        raise ConfigError(
            f"{to} is there already. Renew it with `fedguard baseline update`, or write over it with --force."
        )
    made = _make(run, store, "saved", None, jobs, engine_of(engine, address), quiet)
    made.write(to)
    if not quiet:
        _say(f"{to} written. Commit it. Next: fedguard gate {run} --baseline {to}")


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A baseline.", metavar="FILE")],
    as_json: Annotated[bool, typer.Option("--json", help="The baseline as JSON.")] = False,
) -> None:
    """Show a baseline: its origin, what it watches, its means, and its history."""
    from fedguard.bench.gate.baseline import read
    from fedguard.bench.gate.baseline_table import terminal

    found = read(file)
    if as_json:
        typer.echo(found.text(), nl=False)
    else:
        console.print(terminal(found), highlight=False)


@app.command()
def update(
    run: RunName,
    baseline: BaselineFile,
    reason: Annotated[str, typer.Option(help="Why the numbers may be others from now on. It is kept in the history.")],
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    quiet: Quiet = False,
    store: Store = Path("runs"),
) -> None:
    """Replace a baseline by a run, and give the reason. The history is kept, and the changes are shown."""
    from fedguard.bench.gate.baseline import read

    before = read(baseline)
    made = _make(run, store, reason, before, jobs, engine_of(engine, address), quiet)
    made.write(baseline)
    if not quiet:
        _say(f"{baseline} updated. {'What changed:' if made.history[-1].changes else 'No metric changed.'}")
        for line in made.history[-1].changes:
            _say(f"  {line}")


def _make(
    run: str, store: Path, reason: str, before: Baseline | None, jobs: int | None, engine: Ray | None, quiet: bool
) -> Baseline:
    from fedguard.bench.gate.work import make_baseline

    try:
        return make_baseline(load_run(run, store), reason, before, jobs=jobs, listener=_listener(quiet), engine=engine)
    except KeyboardInterrupt as interruption:  # typer would swallow what it says
        fail(str(interruption) or "interrupted.", 130)


def _listener(quiet: bool) -> Listener:
    from fedguard.bench.running.progress import Listener, for_console

    return Listener() if quiet else for_console(console)


def _write(path: Path, text: str, append: bool = False) -> None:
    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    try:
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}.") from None


def _say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
