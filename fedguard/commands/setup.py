"""`fedguard doctor` and `init`: where to start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedguard.commands.options import Store, console
from fedguard.errors import ConfigError


def doctor(store: Store = Path("runs")) -> None:
    """Check whether this installation works: packages, plug-ins, cores, memory, a writable folder."""
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
    full: Annotated[bool, typer.Option("--full", help="One with every key explained, of some 240 trials.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Write a suite file to start from: a small one, which answers within half a minute."""
    from fedguard.bench import starters

    if file.exists() and not force:
        raise ConfigError(f"{file} is there already. Choose another name, or write over it with --force.")
    starters.write({str(file): starters.suite(full)}, over=force)
    _print_text(f"{file} written. Next: fedguard check {file}, then fedguard run {file}.")


def new(
    kind: Annotated[str, typer.Argument(help="attack, defense or data.", metavar="KIND")],
    name: Annotated[str, typer.Argument(help="How suites shall call it, such as my_attack.", metavar="NAME")],
) -> None:
    """Write a template for your own attack, defense or data set: a module, a suite that runs it, and a test."""
    from fedguard.bench import starters

    written = starters.plugin(kind, name)
    starters.write(written)
    _print_text(f"{', '.join(written)} written. Next: fedguard run {name}.yaml; pytest test_{name}.py.")


def examples(
    name: Annotated[str | None, typer.Argument(help="An example, to be copied here.", metavar="[NAME]")] = None,
) -> None:
    """List the examples that come with FedGuard, or copy one to the working directory."""
    from fedguard.bench import starters

    if name is None:
        from fedguard.bench.terminal.printed import lines

        console.print(lines(starters.examples()))
        _print_text("\n`fedguard examples NAME` copies one to this folder.")
        return
    written = starters.example(name)
    starters.write(written)
    suite = next((file for file in written if re.fullmatch(r"[^/]+\.yaml", file)), None)
    _print_text(f"{', '.join(written)} written.{f' Next: fedguard run {suite}.' if suite else ''}")


def _print_text(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
