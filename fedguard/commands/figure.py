"""`fedguard figure`: a chart or a table of a page for a paper."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from fedguard.commands.options import Force, RunName, Store, check_choices, console, files_of, load_run
from fedguard.errors import ConfigError


def figure(
    run: RunName,
    what: Annotated[
        str,
        typer.Argument(
            metavar="PAGE[:BLOCK]",
            help="A page, such as overview, and its chart or table by the beginning of its name. Default: the first chart.",
        ),
    ] = "overview",
    to: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A file that ends in .pdf, .svg, .png, .tex, .csv or .gif. Repeatable."),
    ] = None,
    width: Annotated[
        Literal["column", "page"], typer.Option(help="Width of a picture: one column (3.35 in), or a page (6.9 in).")
    ] = "column",
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help='A choice of the page, such as "setting=training.lr = 0.1".'),
    ] = None,
    force: Force = False,
    store: Store = Path("runs"),
) -> None:
    """Write a chart or a table of a page as a file for a paper, and print its caption.

    Pictures have the width of a column, embedded fonts and the colors of paper. .tex is a table of booktabs with its caption,
    .csv the values; .gif shows the rounds of the page replay one after the other. The caption says what was trained, with n, f
    and seeds, and what symbols and intervals mean.

    Without --to, the command lists the charts and tables of the page.

    Example: fedguard figure quick overview --to falls.pdf --to falls.tex
    """
    from fedguard.bench.pages import figure as figures
    from fedguard.bench.pages.blocks import Chart
    from fedguard.bench.pages.page import PAGES, keys_beside, page

    name, _, part = what.partition(":")
    if name not in PAGES:
        raise ConfigError(f"expected one of the pages {', '.join(PAGES)}; got {name}.")
    found = load_run(run, store)
    choices = dict(one.partition("=")[::2] for one in at or ())
    blocks = check_choices(page(name).blocks(found, choices), choices, keys_beside(name, found))
    if not to:
        for one, block in figures.figures(blocks).items():
            console.print(
                f"{name}:{one}  {'chart' if isinstance(block, Chart) else 'table'}",
                highlight=False,
                markup=False,
            )
        return
    block = figures.find_figure(blocks, part or None, name)
    for form, path in files_of(to, figures.FORMS, force):
        if form == "gif":
            charts = figures.sequence(partial(page(name).blocks, found), choices, part or None, name)
            path.write_bytes(figures.animate(charts, width))
        else:
            path.write_bytes(figures.draw(block, cast("figures.Form", form), found, width))
        console.print(f"{path} written.", highlight=False, markup=False, soft_wrap=True)
    console.print(f"Caption: {figures.caption(block, found)}", highlight=False, markup=False, soft_wrap=True)
