"""`fedguard contribution`: what each client of a training was worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from fedguard.commands.options import RunName, Store, console, load_run, print_json


def contribution(
    run: RunName,
    cell: Annotated[
        str | None,
        typer.Argument(
            metavar="CELL",
            help="Of the run, as in 'sign_flip against median', or a part that names one. Needed of several.",
        ),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Repeatable. Default: those of the run.")] = None,
    orders: Annotated[
        int,
        typer.Option(
            min=1, help="Orders of its clients that each aggregate draws: four times as many halve the intervals."
        ),
    ] = 20,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0, max=0.99, help="In an order, leave out the rest as soon as so much of the gain is missing."
        ),
    ] = 0.0,
    measure: Annotated[
        Literal["accuracy", "loss"], typer.Option(help="What a model is worth: of the test examples.")
    ] = "accuracy",
    as_json: Annotated[
        bool, typer.Option("--json", help="The shares as JSON: accuracy in [0, 1], or loss in nats.")
    ] = False,
    store: Store = Path("runs"),
) -> None:
    """Say what each client contributed to a training, the malicious ones too: Shapley values of its aggregates.

    The cell is trained once more. For each aggregate, its clients are added one by one in random orders. A client is credited
    with the model's gain when its update joins the earlier ones, aggregated by the rule of the cell. Its share is the mean over
    orders. The shares of all aggregates add up to the total gain of the model. A client that does harm has a share below 0.

    This requires a server that sees single updates, in simulated time too: no means or sums of several updates, no masks, no
    noise of a trusted server, no server momentum. An aggregate evaluates at most orders x clients models, each on all test
    examples.

    Exit code 0, or 2 if the cell cannot be evaluated, with the reason.
    """
    from fedguard.bench.audits.contributed import Contributions, cell_named
    from fedguard.bench.audits.contribution import contribution as valued
    from fedguard.bench.gate.snapshot import plan_of

    plan = plan_of(load_run(run, store))
    label, found = cell_named(plan, cell)
    progress = Console(stderr=True)  # beside the result, which may be JSON
    shares = {}
    with progress.status(label) as status:
        for one in dict.fromkeys(seed or plan.suite.seeds):

            def after(round: int, one: int = one) -> None:
                if progress.is_terminal:
                    status.update(f"{label}, seed {one}: round {round} of {found.training.rounds}")

            shares[one] = valued(found, one, measure=measure, permutations=orders, tolerance=tolerance, after=after)
            if not progress.is_terminal:
                typer.echo(f"{label}: seed {one} valued", err=True)
    told = Contributions(label, measure, orders, shares)
    if as_json:
        print_json(told.as_dict())
    else:
        console.print(told, highlight=False)
