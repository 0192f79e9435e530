"""`fedguard compare`: two runs, seed by seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedguard.commands.options import Store, console, load_run, note_old_metrics, print_json


def compare(
    a: Annotated[str, typer.Argument(help="The run to compare with: its name in the store, or its folder.")],
    b: Annotated[str, typer.Argument(help="The run that is compared with it.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            callback=note_old_metrics, help="Such as worst_class_accuracy. Repeatable. Default: final_accuracy."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The differences as JSON, with shares in [0, 1].")] = False,
    store: Store = Path("runs"),
) -> None:
    """Compare two runs: paired differences over common seeds with intervals; all cells together, then the largest changes.

    Positions are matched by their swept values; other differences of the configurations are listed. One test over all cells
    finds small changes that many cells share, even if no single cell shows them. P-values of single cells are adjusted by Holm
    for their number. Still, this is exploration. A verdict on a change comes from `fedguard gate`, which tests apparent drops
    again on fresh seeds.

    Exit code 0, or 4 if nothing could be compared.
    """
    from fedguard.bench.pages.compare import in_terminal
    from fedguard.bench.pages.trained import describe_training
    from fedguard.bench.results.compare import compare as held_together

    one, other = load_run(a, store), load_run(b, store)
    found = held_together(one, other, metric or one.score)
    if as_json:
        print_json(found.as_dict())
    else:
        console.print(in_terminal(found, describe_training(other)), highlight=False)
    if not found.differences:
        raise typer.Exit(4)
