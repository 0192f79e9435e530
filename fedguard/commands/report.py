"""`fedguard report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedguard.commands.options import Force, RunName, Store, console, files_of, load_run


def report(
    run: RunName,
    to: Annotated[
        list[str] | None, typer.Option(metavar="FILE.html", help="The file. Repeatable. Default: NAME.html, here.")
    ] = None,
    force: Force = False,
    store: Store = Path("runs"),
) -> None:
    """Write a run as one HTML file with its charts in it, to be read without network, in light or dark, or on paper.

    It holds what was run, worst cases with intervals, refused cells with the reasons, every matrix, red flags, threat cards,
    breakdown curves, epsilons with their assumptions, reconstructions, the gate's last verdict, costs, and the configuration.
    Names in it are plain text: nothing in the file is executed, and it loads nothing.
    """
    from fedguard.app.report import report as write

    found = load_run(run, store)
    for _, html in files_of(to or [f"{found.name}.html"], ("html",), force):
        write(found, html, force=force)
        said = f"{html} written: {html.stat().st_size / 1e3:,.0f} kB."
        console.print(said, highlight=False, markup=False, soft_wrap=True)
