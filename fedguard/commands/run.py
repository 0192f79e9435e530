"""`fedguard run`, `tune` and `check`: what works on a suite file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedguard.commands.options import (
    Address,
    EngineName,
    Force,
    Jobs,
    Settings,
    Store,
    SuiteFile,
    console,
    engine_of,
    fail,
    files_of,
)
from fedguard.commands.show import print_overview

if TYPE_CHECKING:
    from fedguard.bench.results.run import Run
    from fedguard.bench.running.estimate import TimeEstimate


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
    engine: EngineName = "local",
    address: Address = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="What all workers together may hold, such as 4G or 512M; larger updates go through a file. Default: no limit.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(metavar="cpu|cuda", help="Where the clients' training and the evaluation compute."),
    ] = "cpu",
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="What a trial may take; one that takes longer has failed, and the run goes on. Default: no limit.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Run the first N missing trials of the plan, and say how many are left."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run trials again that failed before.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every trial again, whatever is stored.")] = False,
    secret_noise: Annotated[
        bool,
        typer.Option(
            "--secret-noise",
            help="Draw noise for privacy from the operating system: for who publishes models or records. Not reproducible.",
        ),
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Show in the end where the time went.")] = False,
    otlp: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send spans of trials and rounds to this collector of OpenTelemetry."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Run a suite: every attack against every defense, with every seed.

    Run the same command again to go on after an interruption: what is stored is not run twice.
    """
    from fedguard import api
    from fedguard.bench.running.manifest import uses_secret_noise
    from fedguard.bench.running.progress import Listener, for_console
    from fedguard.bench.running.schedule import TrialSchedule

    if attack:
        settings = [*settings, f"matrix.attack={json.dumps(['none', *attack])}"]
    if dry_run:
        laid_out = api.lay_out(suite, settings)[1]
        folder = api.run_folder(laid_out, store, name)
        secret = secret_noise or uses_secret_noise(folder)
        schedule = TrialSchedule(laid_out, folder, retry_failed=retry_failed, fresh=fresh, secret_noise=secret)
        pending = schedule.pending()
        for trial in pending:
            console.print(f"{trial[0]}  seed {trial[1]}  {schedule.cell(trial).label}", highlight=False, markup=False)
        console.print(f"{len(pending)} of {schedule.trials(pending)} trials would run.", highlight=False)
        return
    listener = Listener() if quiet else for_console(console)
    if otlp is not None:
        from fedguard.bench.running.spans import to_collector

        listener = to_collector(listener, otlp)
    try:
        result = api.run(
            suite,
            name=name,
            store=store,
            jobs=jobs,
            engine=engine_of(engine, address),
            memory=memory,
            device=device,
            timeout=timeout,
            limit=limit,
            secret_noise=secret_noise,
            overrides=settings,
            retry_failed=retry_failed,
            fresh=fresh,
            listener=listener,
        )
    except KeyboardInterrupt as interruption:  # typer would swallow what it says
        fail(str(interruption) or "interrupted.", 130)
    if not quiet:
        print_overview(result)
    if profile:
        if not quiet:
            console.print()
        console.print(result.profile(), highlight=False)
    if not quiet:
        _next_steps(result, store)
    if result.failures:
        raise typer.Exit(4)


def tune(
    suite: SuiteFile,
    settings: Settings = [],  # noqa: B006
    budget: Annotated[int, typer.Option(min=1, help="Settings tried of each defense at most, its own included.")] = 8,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Tune on this attack, as in `--attack alie --attack 'ipm(tau=5)'`. Repeatable. "
            "Default: every second attack of the suite.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of tuning seeds; they count from 10000.")] = 3,
    to: Annotated[
        str | None,
        typer.Option(metavar="FILE.yaml", help="The tuned suite. Default: SUITE with the ending .tuned.yaml."),
    ] = None,
    force: Force = False,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Put a setting over the suite's in the tuning alone, as in `--proxy task.data=wine`. Repeatable.",
        ),
    ] = None,
    regret: Annotated[
        bool, typer.Option("--regret", help="Tune on the suite's own data, too, and say what the proxy costs there.")
    ] = False,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run trials again that failed before.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Tune the defenses of a suite, each with the same budget, and write a suite that reports them.

    Defenses with untuned settings, or tuned on the attacks that they are judged by, cannot be compared fairly. Here each
    defense is tried at up to `--budget` settings: first its own, then values of its grid (`fedguard explain DEFENSE`) one at a
    time, then combinations. The score of a setting is its worst final accuracy, without attack and over the tuning attacks,
    averaged over the tuning seeds. The best setting is chosen; of equals the one tried first.

    The tuned suite holds the chosen settings, the *held-out* attacks, which were not used in tuning, and its own seeds, which
    differ from the tuning seeds. Its section `tuning:` records the tuning. Run it for the result: the scores shown here belong
    to the best of several settings, and are too high.

    With `--proxy` the tuning trains on other data, and the report is on the suite's own. `--regret` says what that costs.

    Run the same command again to go on after an interruption. Tried settings are stored in the run SUITE-tuning.
    """
    from fedguard import api
    from fedguard.bench.running.progress import Listener, for_console

    files = files_of([to] if to else (), ("yaml",), force)
    try:
        tuning = api.tune(
            suite,
            budget=budget,
            attacks=attack or None,
            seeds=seeds,
            out=files[0][1] if files else None,
            force=force,
            store=store,
            jobs=jobs,
            engine=engine_of(engine, address),
            overrides=settings,
            proxy=proxy or (),
            regret=regret,
            retry_failed=retry_failed,
            listener=Listener() if quiet else for_console(console),
        )
    except KeyboardInterrupt as interruption:  # typer would swallow what it says
        fail(str(interruption) or "interrupted.", 130)
    if not quiet:
        console.print(tuning)
        said = f"{tuning.file} written. Next: fedguard run {tuning.file}"
        console.print(said, highlight=False, markup=False, soft_wrap=True)
    if tuning.failed:
        raise typer.Exit(4)


def check(suite: SuiteFile, settings: Settings = [], jobs: Jobs = None) -> None:  # noqa: B006
    """Say what a suite would do, without running it: what is legal, what is refused and why, how long it takes."""
    from fedguard import api
    from fedguard.bench.running.check import explain_refusals, render_plan
    from fedguard.bench.running.engines.local import default_jobs
    from fedguard.bench.running.estimate import estimate

    laid_out = api.lay_out(suite, settings)[1]
    refused = explain_refusals(laid_out)
    console.print(render_plan(laid_out, refused))
    if len(refused) == len(laid_out.cells):
        raise typer.Exit(2)
    workers = jobs or default_jobs()
    found = estimate(laid_out, refused, workers)
    if found.seconds > 0:  # nobody knows how long an app of other people takes
        console.print(f"\n{_describe_estimate(found, workers)}", highlight=False)


def _describe_estimate(found: TimeEstimate, workers: int) -> str:
    if found.at_least:
        return f"More than {_duration(found.seconds)} on {workers} workers: a round takes too long to be measured now."
    how = "" if found.share == 1 else f", on 1 example in {round(1 / found.share)}"
    return f"About {_duration(found.seconds)} on {workers} workers, from a few rounds measured now{how}."


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} seconds"
        if seconds < 100
        else f"{seconds / 60:.0f} minutes"
        if seconds < 6000
        else f"{seconds / 3600:.1f} hours"
    )


def _next_steps(run: Run, store: Path) -> None:
    """The next commands, in the form in which they can be typed here: the environment may not be activated."""
    import os
    import shlex
    import shutil

    called = Path(sys.argv[0])
    command = os.path.relpath(called) if called.name == "fedguard" and not shutil.which("fedguard") else "fedguard"
    console.print("\nNext:", style="bold")
    name = run.name if store == Path("runs") else f"{run.name} --store {shlex.quote(str(store))}"
    by_class = (f"show {name} --metric worst_class_accuracy", "the class that fares worst")
    for arguments, meaning in (
        *([by_class] if "worst_class_accuracy" in run.figures else []),
        (f"lint {name}", "what makes the numbers doubtful, and what to do about it"),
        (f"export {name} --to {run.name}.csv", "one row per cell and seed"),
        ("list attack", "what else can be tried"),
        ("explain alie", "one of them, with its formula and source"),
        ("init", "a suite of your own"),
    ):
        console.print(f"  {command} {arguments}   [dim]# {meaning}[/]", highlight=False, soft_wrap=True)
