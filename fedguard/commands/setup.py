"""`fedguard doctor` and `init`: where to start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedguard.commands.options import Store, console
from fedguard.errors import ConfigError


def doctor(store: Store = Path("runs")) -> None:
    """Look whether this installation can work: packages, plug-ins, cores, memory, a place to write."""
    from fedguard.bench.doctor import examine

    healthy = True
    for finding in examine(store):
        healthy &= finding.good
        mark = "[green]ok  [/]" if finding.good else "[red]BAD [/]"
        console.print(f"{mark} {escape(f'{finding.what}: {finding.said}')}", highlight=False)
    if not healthy:
        raise typer.Exit(2)


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
    console.print(
        f"{file} written. Next: fedguard check {file}, then fedguard run {file}.", highlight=False, markup=False
    )
