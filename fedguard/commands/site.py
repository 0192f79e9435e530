"""`fedguard site`: runs as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedguard.commands.options import Force, Store, console, load_run
from fedguard.errors import ConfigError


def site(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Names of runs in the store, or their folders.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder, for the files of the site.")] = Path("site"),
    force: Force = False,
    store: Store = Path("runs"),
) -> None:
    """Write runs as a static site: the pages of the dashboard as HTML files that link to each other.

    Open FOLDER/index.html in a browser, or publish the folder. The site needs no server and no network, and executes nothing.
    Each choice of a page, such as the cell of a matrix, is a file of its own, at most 500 for a run.

    Example: fedguard site digits digits_new --to public
    """
    from fedguard.app.site import MOST
    from fedguard.app.site import site as write

    found = [load_run(name, store) for name in runs]
    names = [run.name for run in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"site: expected runs of different names; got {twice[0]} more than once. Name each once.")
    with console.status("Drawing the pages ...") as status:
        left_out = write(
            found, to, force=force, written=lambda name, count: status.update(f"{name}: {count} files ...")
        )
    size = sum(file.stat().st_size for file in to.rglob("*.html"))
    files = sum(1 for _ in to.rglob("*.html"))
    said = f"{to / 'index.html'} written: {files} files, {size / 1e6:,.1f} MB."
    if left_out:
        said += (
            f" {left_out} views are left out: a run has at most {MOST} files. Show fewer runs, or use the dashboard."
        )
    console.print(said, highlight=False, markup=False, soft_wrap=True)
