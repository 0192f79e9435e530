"""The command line. Each command is a few lines over the Python front door; `--help` loads no torch.

Exit codes: 0 done, 1 a fault of FedGuard's own, 2 usage or configuration, 3 flags raised under `lint --strict`, or an epsilon
that `audit` saw violated, 4 some trials failed, or nothing could be audited, 130 interrupted.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from fedguard.commands import secagg
from fedguard.commands.audit import audit
from fedguard.commands.epsilon import epsilon
from fedguard.errors import ConfigError, FedGuardError, MissingExtra

app = typer.Typer(
    name="fedguard",
    help="Attack-defense benchmarks for federated learning whose figures can be trusted.\n\n"
    "Start with `fedguard init`, then `fedguard run suite.yaml`, then `fedguard show suite`.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(secagg.app)
app.command()(audit)
app.command()(epsilon)

console = Console()

SuiteFile = Annotated[Path, typer.Argument(help="A suite file, such as examples/quick.yaml.", metavar="SUITE")]
RunName = Annotated[str, typer.Argument(help="A run: its name in the store, or its folder.", metavar="RUN")]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Put a setting over the suite's, as in `--set training.rounds=10`. Repeatable.",
    ),
]
Store = Annotated[Path, typer.Option("--store", envvar="FEDGUARD_STORE", help="Folder of all runs.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Worker processes, one torch thread each. Default: one per core."),
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        console.print(f"fedguard {installed('fedguard')}", highlight=False)
    elif context.invoked_subcommand is None:
        console.print(context.get_help())


@app.command()
def run(
    suite: SuiteFile,
    settings: Settings = [],  # noqa: B006  typer needs a literal
    attack: Annotated[
        list[str],
        typer.Option(
            "--attack",
            metavar="NAME",
            help="Run these attacks (and none) instead of the suite's, as in `--attack worst_case`. Repeatable.",
        ),
    ] = [],  # noqa: B006
    name: Annotated[str | None, typer.Option(help="Name of the run folder. Default: the suite's name.")] = None,
    jobs: Jobs = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run trials again that failed before.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run every trial again, whatever is stored.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Run a suite: every attack against every defense, with every seed.

    Run the same command again to go on after an interruption: what is stored is not run twice.
    """
    from fedguard import api
    from fedguard.bench.progress import Listener, for_console
    from fedguard.bench.report import overview
    from fedguard.bench.runner import Runner
    from fedguard.bench.store import RunFolder

    if attack:
        settings = [*settings, f"matrix.attack={json.dumps(['none', *attack])}"]
    if dry_run:
        laid_out = api.lay_out(suite, settings)[1]
        folder = RunFolder(store / (name or laid_out.suite.name))
        runner = Runner(laid_out, folder, retry_failed=retry_failed, fresh=no_cache, dry=True)
        pending = runner.pending()
        for trial in pending:
            console.print(f"{trial[0]}  seed {trial[1]}  {runner.label(trial)}", highlight=False, markup=False)
        console.print(f"{len(pending)} of {runner.trials(pending)} trials would run.", highlight=False)
        return
    try:
        result = api.run(
            suite,
            name=name,
            store=store,
            jobs=jobs,
            settings=settings,
            retry_failed=retry_failed,
            fresh=no_cache,
            listener=Listener() if quiet else for_console(console),
        )
    except KeyboardInterrupt as interruption:  # typer would swallow what it says
        _fail(str(interruption) or "interrupted.", 130)
    if not quiet:
        console.print(overview(result))
        _next_steps(result.name)
    if result.with_status("failed"):
        raise typer.Exit(4)


@app.command()
def tune(
    suite: SuiteFile,
    settings: Settings = [],  # noqa: B006
    budget: Annotated[int, typer.Option(min=1, help="Settings tried of each defense at most, its own included.")] = 8,
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ATTACK",
            help="Tune on this attack, as in `--attacks alie --attacks 'ipm(tau=5)'`. Repeatable. "
            "Default: every second attack of the suite.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of tuning seeds; they count from 10000.")] = 3,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The tuned suite. Default: SUITE with the ending .tuned.yaml.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    jobs: Jobs = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run trials again that failed before.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Tune the defenses of a suite, each with the same budget, and write a suite that reports them.

    Defenses compared at settings that nobody tuned, or tuned on the attacks that they are then judged by, tell little.
    Here each is tried at up to `--budget` settings: first its own, then values of its grid (`fedguard explain DEFENSE`)
    one at a time, then combinations. A setting scores its worst final accuracy, without attack and over the tuning
    attacks, on average over the tuning seeds; the best goes on, and of equals the one tried first.

    The tuned suite holds the chosen settings, the *held-out* attacks, which nothing was tuned on, and its own seeds,
    which are others than the tuning seeds. Its section `tuning:` records what was done. Run it for the result; the
    scores shown here are those of winners, and too good.

    Run the same command again to go on after an interruption. What was tried stays in the run SUITE-tuning.
    """
    from fedguard import api
    from fedguard.bench.progress import Listener, for_console

    try:
        tuning = api.tune(
            suite,
            budget=budget,
            attacks=attacks or None,
            seeds=seeds,
            out=out,
            force=force,
            store=store,
            jobs=jobs,
            settings=settings,
            retry_failed=retry_failed,
            listener=Listener() if quiet else for_console(console),
        )
    except KeyboardInterrupt as interruption:  # typer would swallow what it says
        _fail(str(interruption) or "interrupted.", 130)
    if not quiet:
        console.print(tuning)
        console.print(f"{tuning.file} written. Next: fedguard run {tuning.file}", highlight=False, soft_wrap=True)
    if tuning.failed:
        raise typer.Exit(4)


@app.command()
def check(suite: SuiteFile, settings: Settings = [], jobs: Jobs = None) -> None:  # noqa: B006
    """Say what a suite would do, without running it: what is legal, what is refused and why, how long it takes."""
    from fedguard import api
    from fedguard.bench.check import checked, estimate_seconds, refused_cells
    from fedguard.bench.engines.local import default_jobs

    laid_out = api.lay_out(suite, settings)[1]
    refused = refused_cells(laid_out)
    console.print(checked(laid_out, refused))
    if len(refused) == len(laid_out.cells):
        raise typer.Exit(2)
    workers = jobs or default_jobs()
    seconds = estimate_seconds(laid_out, refused, workers)
    console.print(
        f"\nAbout {_duration(seconds)} on {workers} workers, from a few rounds measured now.", highlight=False
    )


@app.command("list")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="attack, inference, defense, protocol, trigger, data, partition, model or architecture. Default: all.",
            metavar="[KIND]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of {name, kind, needs, source, ...}.")] = False,
) -> None:
    """List attacks, defenses, data sets and all else that a suite can name."""
    from fedguard.bench.explain.catalogue import entries, kinds_named, listing

    kinds = kinds_named(kind)
    if as_json:
        _print_json(entries(kinds))
    else:
        console.print(listing(kinds))


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="An attack, a defense, or anything else that `list` shows.")],
) -> None:
    """Explain one algorithm: formula, parameters, what it needs to see, when it holds, where it comes from."""
    from fedguard.bench.explain.catalogue import explanation

    console.print(explanation(name))


@app.command()
def kappa(
    rule: Annotated[str, typer.Argument(help="A defense, such as krum or 'nnm >> trimmed_mean'.", metavar="RULE")],
    n: Annotated[int, typer.Option("--n", help="Number of updates.")] = 20,
    f: Annotated[int, typer.Option("--f", help="How many of them are hostile; the rule is told.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the search, and of a rule that draws.")] = 0,
    effort: Annotated[float, typer.Option(help="1 asks the rule 8000 times: some seconds. More finds more.")] = 1.0,
    plugin: Annotated[
        list[str], typer.Option(metavar="MODULE", help="A module that brings rules of your own. Repeatable.")
    ] = [],  # noqa: B006
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON, with the worst input; kappa null for unbounded.")
    ] = False,
) -> None:
    """Search for the worst input of a rule, and so for its robustness coefficient kappa.

    A rule R is (f, kappa)-robust if |R(x) - mean_S|² <= kappa * mean over S of |x_i - mean_S|², for every input x and
    every S of n - f updates. What the search finds is a lower bound of the rule's kappa, shown by an input. No rule can be
    below f/(n - 2f); one above its published bound, or without bound where one is published, is broken.
    """
    import warnings

    from fedguard import api

    if plugin:
        sys.path.append(str(Path.cwd()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = api.kappa(rule, n=n, f=f, seed=seed, effort=effort, plugins=plugin)
    for warning in caught:
        print(f"fedguard: {warning.message}", file=sys.stderr)
    if as_json:
        _print_json(found.entry())
        return
    hostile = sorted(set(range(n)) - set(found.witness[1]))
    console.print(str(found), markup=False, highlight=False)
    console.print(
        f"The worst input is {n} x {found.witness[0].shape[1]}, with hostile rows {hostile}; --json prints it.",
        markup=False,
        highlight=False,
    )


@app.command()
def show(
    run: RunName,
    figure: Annotated[
        str | None, typer.Option(help="Show the matrix of this figure alone, such as worst_class_accuracy.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture to this file as well.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON instead of tables.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Show a run: the matrix with intervals, what was refused or failed and why, and red flags."""
    from fedguard import api
    from fedguard.bench.report import matrices, overview, write_svg

    opened = api.open_run(run, store)
    if as_json:
        _print_json(opened.rows())
        return
    for path in opened.broken:
        Console(stderr=True).print(f"{path} is damaged and left out; run the suite again to replace it.", markup=False)
    console.print(opened.table(figure) if figure else overview(opened))
    if svg:
        write_svg([opened.table(figure)] if figure else list(matrices(opened)), svg)
        console.print(f"\nPicture written to {svg}.", highlight=False)


@app.command()
def lint(
    what: Annotated[
        str, typer.Argument(help="A run, or a table of results: a .json or .csv file.", metavar="RUN|FILE")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="The flags as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 if any flag is raised.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Raise the red flags of a run: what makes its figures doubtful, and what to do about it.

    Reads other people's results as well: a JSON list of objects or a CSV file, one row per training, with columns such
    as attack, defense, seed, accuracy, best_accuracy, clean_accuracy, n, f, told_f, classes. What its columns do not
    tell is listed as not judged.
    """
    from fedguard.bench.judging.lint import lint as judge
    from fedguard.bench.judging.lint import results_named

    found = judge(results_named(what, store))
    if as_json:
        _print_json(found.as_json())
    else:
        console.print(found, highlight=False)
    if strict and found.findings:
        raise typer.Exit(3)


@app.command()
def breakdown(
    run: RunName,
    over: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The swept key. Default: clients.malicious, or the only one that is swept."),
    ] = None,
    figure: Annotated[str, typer.Option(help="Such as worst_class_accuracy.")] = "final_accuracy",
    as_json: Annotated[bool, typer.Option("--json", help="The curves as JSON.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Show how defenses break down over a swept key: curves, where half is lost, and the area under each."""
    from fedguard import api

    opened = api.open_run(run, store)
    only = opened.swept[0] if len(opened.swept) == 1 else "clients.malicious"
    curves = opened.breakdown(over or only, figure)
    if as_json:
        _print_json({"points": curves.rows(), "curves": curves.summary()})
    else:
        console.print(curves, highlight=False)


@app.command()
def trilemma(
    run: RunName,
    as_json: Annotated[bool, typer.Option("--json", help="The points as JSON.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Show what privacy costs and what still leaks: epsilon, accuracy under the worst attack, and leakage side by side."""
    from fedguard import api

    points = api.open_run(run, store).trilemma()
    if as_json:
        _print_json(points.rows())
    else:
        console.print(points, highlight=False)


@app.command()
def export(
    run: RunName,
    csv: Annotated[Path | None, typer.Option(help="Write the rows as CSV.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the rows as JSON.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write the rows as Parquet (needs pandas and pyarrow).")] = None,
    store: Store = Path("runs"),
) -> None:
    """Export a run: one row per cell and seed, with the columns of `run.frame()`."""
    from fedguard import api
    from fedguard.bench.export import write_rows

    opened = api.open_run(run, store)
    targets = [path for path in (csv, json, parquet) if path is not None]
    if not targets:
        raise ConfigError("export: expected --csv FILE, --json FILE or --parquet FILE; got none of them.")
    for path, form in ((csv, "csv"), (json, "json"), (parquet, "parquet")):
        if path is not None:
            write_rows(opened, path, form)
            console.print(f"{len(opened.rows())} rows written to {path}.", highlight=False)


@app.command()
def dashboard(
    store: Store = Path("runs"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 8501,
    address: Annotated[
        str, typer.Option(help="Where to listen. Anybody who reaches it can read all runs.")
    ] = "localhost",
) -> None:
    """Explore runs in the browser."""
    import importlib.util
    import os
    import subprocess

    if importlib.util.find_spec("streamlit") is None:
        raise MissingExtra("the dashboard", "streamlit", "dashboard")
    page = importlib.util.find_spec("fedguard.app.main")
    assert page is not None and page.origin is not None
    command = [sys.executable, "-m", "streamlit", "run", page.origin, "--browser.gatherUsageStats", "false"]
    command += ["--client.toolbarMode", "minimal", "--server.address", address, "--server.port", str(port)]
    environment = {**os.environ, "FEDGUARD_STORE": str(store.resolve())}
    try:
        raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command()
def doctor(store: Store = Path("runs")) -> None:
    """Look whether this installation can work: packages, plug-ins, cores, memory, a place to write."""
    from fedguard.bench.doctor import examine

    healthy = True
    for finding in examine(store):
        healthy &= finding.good
        console.print(
            f"[{'green]ok  ' if finding.good else 'red]BAD '}[/] {finding.what}: {finding.said}", highlight=False
        )
    if not healthy:
        raise typer.Exit(2)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("suite.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Write a suite file to start from, with every key explained."""
    from importlib.resources import files

    if file.exists() and not force:
        raise ConfigError(f"{file} is there already. Choose another name, or write over it with --force.")
    try:
        file.write_text(files("fedguard").joinpath("starter.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}.") from None
    console.print(f"{file} written. Next: fedguard check {file}, then fedguard run {file}.", highlight=False)


def main() -> NoReturn:
    """Run the command line: a user's mistake is one line and exit 2, a fault of ours is a log and exit 1."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        code = app(standalone_mode=False, prog_name="fedguard")
        sys.exit(code if isinstance(code, int) else 0)
    except _USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        _fail(f"{error.format_message()} (See `{context.command_path if context else 'fedguard'} --help`.)", 2)
    except FedGuardError as error:
        _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted.", 130)
    except Exception as error:
        log = Path(f"fedguard-crash-{time.strftime('%Y%m%d-%H%M%S')}.log")
        log.write_text(traceback.format_exc(), encoding="utf-8")
        _fail(f"a fault of FedGuard, not yours: {type(error).__name__}: {error}. Please report it with {log}.", 1)


#: Typer's base of usage errors: click's own class, or that of the copy which newer versions of typer carry.
_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[2]


def _fail(message: str, code: int) -> NoReturn:
    print(f"fedguard: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, allow_nan=False))


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} seconds"
        if seconds < 100
        else f"{seconds / 60:.0f} minutes"
        if seconds < 6000
        else f"{seconds / 3600:.1f} hours"
    )


def _next_steps(run: str) -> None:
    """What to type next, with the command as it can be typed here: an environment need not be activated."""
    import os
    import shutil

    called = Path(sys.argv[0])
    command = os.path.relpath(called) if called.name == "fedguard" and not shutil.which("fedguard") else "fedguard"
    console.print("\nNext:", style="bold")
    for arguments, meaning in (
        (f"show {run} --figure worst_class_accuracy", "the class that fares worst"),
        (f"lint {run}", "what makes the figures doubtful, and what to do about it"),
        (f"export {run} --csv {run}.csv", "one row per cell and seed"),
        ("list attack", "what else can be tried"),
        ("explain alie", "one of them, with its formula and source"),
        ("init", "a suite of your own"),
    ):
        console.print(f"  {command} {arguments}   [dim]# {meaning}[/]", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
