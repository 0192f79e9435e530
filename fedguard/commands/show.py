"""`fedguard show`, `lint`, `breakdown`, `privacy`, `export` and `schema`: what reads a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from fedguard.commands.contribution import contribution
from fedguard.commands.options import (
    Force,
    RunName,
    Store,
    check_choices,
    console,
    files_of,
    load_run,
    note_old_metrics,
    print_json,
)
from fedguard.errors import ConfigError, UnknownName
from fedguard.retired import note_renamed

if TYPE_CHECKING:
    from fedguard.bench.pages.blocks import Address, More
    from fedguard.bench.results.run import Run

Choices = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help='A choice, such as "setting=clients.malicious = 2".')
]

Page = Literal["cell", "breakdown", "privacy", "secagg", "protocol", "replay", "contribution", "compare", "gate"]


def show(
    run: RunName,
    metric: Annotated[
        str | None,
        typer.Option(
            callback=note_old_metrics, help="Show the matrix of this metric alone, such as worst_class_accuracy."
        ),
    ] = None,
    page: Annotated[
        Page | None,
        typer.Option(help="Show this page instead of the overview."),
    ] = None,
    to: Annotated[
        list[str] | None, typer.Option(metavar="FILE.svg", help="Write the picture to this file as well. Repeatable.")
    ] = None,
    force: Force = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Show every attack against every defense instead.")] = False,
    cell: Annotated[
        str | None, typer.Option(metavar="ATTACK,DEFENSE", help="Show this cell instead, as in --cell alie,median.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="Show everything: each defense, each check, refusals, other settings.")
    ] = False,
    at: Choices = None,
    profile: Annotated[bool, typer.Option("--profile", help="Show where the time went instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON instead of tables.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Show a run: the verdict, what was trained, each defense with intervals, and what speaks against quoting it."""
    from fedguard.bench.pages.blocks import More
    from fedguard.bench.results.matrices import matrices, write_svg

    if page and profile:
        raise ConfigError("show --profile: expected no --page beside it; got both. Give one of them.")
    if (profile or page) and to:
        raise ConfigError("show --to: expected neither --profile nor --page beside it; the picture is of the matrix.")
    if metric and (profile or page not in (None, "breakdown")):
        raise ConfigError("show --metric: expected neither --profile nor --page beside it, except --page breakdown.")
    choices = dict(one.partition("=")[::2] for one in at or ())
    if cell:
        from fedguard.bench.pages.cell import find_cell

        page, choices = page or "cell", {**choices, **find_cell(load_run(run, store), cell)}
    if page is not None:
        _show_page(run, page, metric, choices, whole=whole, as_json=as_json, store=store)
        return
    found, files = load_run(run, store), files_of(to, ("svg",), force)
    choices = dict(one.partition("=")[::2] for one in at or ())
    if as_json:
        rows = found.rows_of(metric) if metric else found.rows()
        print_json(found.profile().as_dict() if profile else rows)
    elif profile:
        console.print(found.profile(), highlight=False)
    elif metric or matrix:
        print_matrix(found, metric, choices, whole)
    else:
        more = More("Every attack against every defense", (), shlex.join(["fedguard", "show", found.name, "--matrix"]))
        print_overview(found, [more], choices, whole)
    said = Console(stderr=as_json, highlight=False, markup=False)  # beside the rows, which may be JSON
    for _, svg in files:
        write_svg([found.table(metric)] if metric else list(matrices(found)), svg)
        said.print(f"\nPicture written to {svg}.")


def print_overview(
    run: Run, more: Sequence[More] = (), at: Address = MappingProxyType({}), whole: bool = False
) -> None:
    """Print the overview of a run, and the matrices that its verdict does not sum up.

    Args:
        more: what else a command shows.
        at: the reader's choices.
        whole: whether what is folded away is printed too.
    """
    from fedguard.bench.pages.matrix import heatmaps
    from fedguard.bench.pages.overview import OVERVIEW
    from fedguard.bench.pages.terminal import render_terminal

    # What no verdict sums up: what was inferred or evaded, and all of a run without an attack on the training
    beside = heatmaps(run, "show", (run.score, "final_accuracy", "attack_success") if run.verdicts else ())
    blocks = check_choices(OVERVIEW.blocks(run, at), at)
    console.print(render_terminal([*blocks, *beside, *more], unfold=whole), highlight=False)


def print_matrix(run: Run, metric: str | None, at: Address, whole: bool) -> None:
    """Print the matrix of a metric; by default of all that are shown by default."""
    from fedguard.bench.pages import matrix
    from fedguard.bench.pages.terminal import render_terminal

    blocks = check_choices(matrix.whole(run, "show", at, metric), at)
    console.print(render_terminal(blocks, unfold=whole), highlight=False)


def _show_page(
    run: str, name: Page, metric: str | None, at: Address, *, whole: bool, as_json: bool, store: Path
) -> None:
    """Show a page of a run; rows and what is no page are from the command of its name."""
    if as_json and name in ("cell", "secagg", "protocol", "replay"):
        raise ConfigError(f"show --json: expected no --page {name} beside it; `fedguard export --json` has the rows.")
    if as_json and name in ("compare", "gate"):
        raise ConfigError(f"show --json: expected no --page {name} beside it; `fedguard {name} --json` has the rows.")
    if name == "contribution":
        contribution(run, as_json=as_json, store=store)
    elif as_json and name == "breakdown":
        breakdown(run, metric=metric, as_json=True, store=store)
    elif as_json:
        privacy(run, as_json=True, store=store)
    else:
        _print_page(load_run(run, store), name, {**at, **({"metric": metric} if metric else {})}, whole)


def _print_page(run: Run, name: Page, at: Address, whole: bool) -> None:
    from fedguard.bench.pages.page import keys_beside, page
    from fedguard.bench.pages.terminal import render_terminal

    blocks = check_choices(page(name).blocks(run, at), at, keys_beside(name, run))
    console.print(render_terminal(blocks, unfold=whole), highlight=False)


class LintReason(StrEnum):
    """What `fedguard lint` may fail on."""

    FLAGS = "flags"


def lint(
    what: Annotated[
        str, typer.Argument(help="A run, or a table of results: a .json or .csv file.", metavar="RUN|FILE")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="The flags as JSON.")] = False,
    fail_on: Annotated[list[LintReason] | None, typer.Option(help="Exit with 3 if any flag is raised.")] = None,
    store: Store = Path("runs"),
) -> None:
    """Raise the red flags of a run: conditions that make its metrics doubtful, and what to do about them.

    Reads other people's results as well: a JSON list of objects or a CSV file, one row per training, with columns such as
    attack, defense, seed, accuracy, best_accuracy, clean_accuracy, n, f, assumed_f, classes. Flags that need missing columns
    are listed as not judged.
    """
    from fedguard.bench.flags.lint import lint as judge
    from fedguard.bench.flags.lint import results_named

    found = judge(results_named(what, store, load_run))
    if as_json:
        print_json(found.as_json())
    else:
        console.print(found, highlight=False)
    if fail_on and found.findings:
        raise typer.Exit(3)


def breakdown(
    run: RunName,
    over: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The swept key. Default: clients.malicious, or the only one that is swept."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(callback=note_old_metrics, help="Such as worst_class_accuracy. Default: what is judged by."),
    ] = None,
    at: Choices = None,
    as_json: Annotated[bool, typer.Option("--json", help="The curves as JSON.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Show how defenses break down over a swept key: points, the value at which half is lost, and the area under each curve.

    This is the page that `fedguard show RUN --page breakdown` prints too.
    """
    from fedguard.bench.results.in_weight import weight_breakdowns

    found, choices = load_run(run, store), dict(one.partition("=")[::2] for one in at or ())
    over, metric = over or choices.get("over"), metric or choices.get("metric")
    only = found.swept[0] if len(found.swept) == 1 else "clients.malicious"
    if over is None and only not in found.swept:
        swept = f"it sweeps {', '.join(found.swept)}; choose one with --over" if found.swept else "it sweeps neither"
        raise ConfigError(
            f"breakdown: expected a run that sweeps clients.malicious or one other key beside attack and defense; {swept}. "
            "Put such as clients.malicious: [0, 2, 4] under matrix, and run the suite again."
        )
    curves = found.breakdown(over or only, metric)
    if as_json:
        in_weight = weight_breakdowns(found)
        print_json(
            {"points": curves.rows(), "curves": curves.summary()} | ({"in_weight": in_weight} if in_weight else {})
        )
    else:
        _print_page(found, "breakdown", {**choices, "over": curves.key, "metric": curves.figure}, True)


def privacy(
    run: RunName,
    as_json: Annotated[bool, typer.Option("--json", help="The points as JSON.")] = False,
    store: Store = Path("runs"),
) -> None:
    """Show the cost of privacy and what still leaks: epsilon, accuracy under the worst attack, and leakage side by side."""
    points = load_run(run, store).privacy()
    if as_json:
        print_json(points.rows())
    else:
        console.print(points, highlight=False)


def trilemma(
    run: RunName, as_json: Annotated[bool, typer.Option("--json")] = False, store: Store = Path("runs")
) -> None:
    """Show the cost of privacy, under the name of earlier versions."""
    note_renamed([("trilemma", "privacy")])
    privacy(run, as_json, store)


#: Commands of earlier versions, by name
RETIRED = {"trilemma": trilemma}


def export(
    run: RunName,
    to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Write the rows as .csv, .json or .parquet (needs pandas and pyarrow). Repeatable."
        ),
    ] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON.")] = False,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="FILE|ADDRESS", help="Write the trials to MLflow: a server, or an SQLite file."),
    ] = None,
    tensorboard: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write the trials for `tensorboard --logdir FOLDER`.")
    ] = None,
    wandb: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write the trials as offline runs for `wandb sync`.")
    ] = None,
    store: Store = Path("runs"),
) -> None:
    """Export a run: one row per cell and seed, with the columns of `run.frame()`; or its trials to an experiment tracker.

    MLflow, TensorBoard and Weights & Biases get a run for each trial and one for each cell, with parameters, tags, metrics,
    intervals and curves over the rounds. Trials that were exported before are skipped unless they changed.

    A run with an epsilon for noise drawn from its seed is exported with a warning: see `fedguard run --secret-noise`.
    """
    from fedguard.bench.flags.results import results_of
    from fedguard.bench.flags.run_flags import RaisedFlag, noise_from_seed
    from fedguard.bench.results.export import write_rows
    from fedguard.bench.results.tracking import track

    found, files = load_run(run, store), files_of(to, ("csv", "json", "parquet"), force)
    trackers = {"mlflow": mlflow, "tensorboard": tensorboard, "wandb": wandb}
    if not (files or as_json or any(trackers.values())):
        raise ConfigError(
            "export: expected --to FILE (.csv, .json or .parquet), --json, --mlflow FILE, --tensorboard FOLDER or --wandb "
            "FOLDER; got none of them."
        )
    said = Console(stderr=as_json, soft_wrap=True, highlight=False, markup=False)  # beside the rows, which may be JSON
    for name, target in trackers.items():
        if target is not None:
            new, same = track(found, name, target)
            said.print(f"{new} trials and cells written to {target}; {same} were there.")
    for form, path in files:
        write_rows(found, path, form)
        said.print(f"{len(found.rows())} rows written to {path}.")
    if as_json:
        print_json(found.rows())
    flagged = noise_from_seed(results_of(found), ())
    if isinstance(flagged, RaisedFlag):
        said.print(f"noise_from_seed: {flagged.said}")


def schema(
    form: Annotated[str, typer.Argument(help="What lies in the folder of a run.", metavar="record|manifest")],
) -> None:
    """Print the JSON Schema of what is stored: every field with its type and meaning."""
    from fedguard.bench.records.schema.document import FORMS, json_schema

    if form not in FORMS:
        raise UnknownName("document", form, FORMS)
    print_json(json_schema(form))
