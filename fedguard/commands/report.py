"""`fedguard report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedguard.commands.options import RunName, Store, console, load_run


def report(
    run: RunName,
    html: Annotated[
        Path, typer.Option("--html", metavar="FILE", help="The file. An earlier report there is written over.")
    ],
    store: Store = Path("runs"),
) -> None:
    """Write a run as one HTML file with its charts in it, to be read without network, in light or dark, or on paper.

    It holds what was run, worst cases with intervals, refused cells with the reasons, every matrix, red flags, threat cards,
    breakdown curves, epsilons with their assumptions, reconstructions, the gate's last verdict, costs, and the configuration.
    Names in it are plain text: nothing in the file is executed, and it loads nothing.
    """
    from fedguard.app.report import report as write

    write(load_run(run, store), html)
    console.print(
        f"{html} written: {html.stat().st_size / 1e3:,.0f} kB.", highlight=False, markup=False, soft_wrap=True
    )
