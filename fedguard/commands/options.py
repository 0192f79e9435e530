"""Options and phrases that several commands share."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from fedguard.errors import ConfigError, UnknownName, brief
from fedguard.retired import RETIRED_METRICS, note_renamed, renew_metric

if TYPE_CHECKING:
    from fedguard.bench.pages.blocks import Block
    from fedguard.bench.results.run import Run
    from fedguard.bench.running.engines.ray import Ray

console = Console()

SuiteFile = Annotated[Path, typer.Argument(help="A suite file, such as examples/quick.yaml.", metavar="SUITE")]
RunName = Annotated[str, typer.Argument(help="A run: its name in the store, or its folder.", metavar="RUN")]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Put a setting over the suite's, as in `--set training.rounds=10`. Repeatable.",
    ),
]
Store = Annotated[Path, typer.Option("--store", envvar="FEDGUARD_STORE", help="Folder of all runs.")]
Force = Annotated[bool, typer.Option("--force", help="Write over existing files.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Worker processes, one torch thread each. Default: one per core."),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", metavar="local|ray", help="Where the workers are: processes of this machine, or a Ray cluster."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="auto|HOST[:PORT]",
        help="With --engine ray: the cluster. Default: one on this machine alone, which ends with the run.",
    ),
]


def note_old_metrics(given: Any) -> Any:
    """What ``--metric`` was given, unchanged; names of earlier versions are noted."""
    names = given if isinstance(given, list) else [given]
    note_renamed((f"--metric {one}", f"--metric {renew_metric(one)}") for one in names if one in RETIRED_METRICS)
    return given


def engine_of(name: str, address: str | None) -> Ray | None:
    """The engine of the workers; None for processes on this machine.

    Raises:
        ConfigError: there is no such engine, or it takes no address.
    """
    if name not in ("local", "ray"):
        raise UnknownName("engine", name, ("local", "ray"), "--engine")
    if name == "local":
        if address is not None:
            raise ConfigError(f"--address: expected one with --engine ray alone; got {address}. Set --engine ray.")
        return None
    from fedguard.bench.running.engines.ray import Ray

    return Ray(address)


def load_run(run: str, store: Path) -> Run:
    """Open a run; records that cannot be read are named and left out.

    Raises:
        StoreError: there is no such run, or its manifest cannot be read.
    """
    from fedguard.bench.results.run import Run

    found = Run.open(run, store)
    for one in found.broken:
        typer.echo(f"{one}. It is left out; run the suite again to replace it.", err=True)
    return found


def check_choices(blocks: Iterable[Block], at: Mapping[str, str], beside: Iterable[str] = ()) -> Sequence[Block]:
    """The blocks of a page, if the page offers each choice that was asked for.

    Args:
        beside: keys that the page reads without offering them.

    Raises:
        UnknownName: the page has no choice of this name, or a choice has no such option.
    """
    from fedguard.bench.pages.blocks import Choice, Steps

    drawn = list(blocks)
    offered = {one.key for one in drawn if isinstance(one, Choice | Steps)}
    for key in at:
        if key not in offered.union(beside):
            none = "" if offered else " The page offers no choice for this run: leave --at out."
            raise UnknownName("choice of this page", key, offered, "--at", none)
    for one in drawn:
        if isinstance(one, Choice) and at.get(one.key, one.chosen) not in one.options:
            raise UnknownName(f"value of --at {one.key}", at[one.key], one.options)
        if isinstance(one, Steps) and at.get(one.key) not in (None, *(names := [name for name, _ in one.items])):
            raise UnknownName(f"value of --at {one.key}", at[one.key], names)
    return drawn


def files_of(
    to: Sequence[str] | None, forms: Sequence[str], force: bool, pipes: bool = False, appended: Sequence[str] = ()
) -> list[tuple[str, Path]]:
    """Form and path of each file of ``--to``: by its suffix, or before a colon, as in ``csv:rows.txt``.

    Args:
        pipes: whether ``-`` is standard output.
        appended: forms that are added to a file, which may be there.

    Raises:
        ConfigError: none of the forms, a folder, a name that no file can have, one in a folder that is not there, a file that
            is named twice, a file that a run is stored in, or one that exists and is not to be written over.
    """
    from fedguard.bench.records.store import is_stored

    found: list[tuple[str, Path]] = []
    for one in to or ():
        form, colon, name = one.partition(":")
        if (
            colon and form not in forms and len(form) > 1 and form.isalpha()
        ):  # one letter is a drive, and a folder has a slash
            known = f"{', '.join(forms[:-1])} or {forms[-1]}" if len(forms) > 1 else forms[0]
            raise ConfigError(f"--to {brief(one)}: expected the form {known} before the colon; got {brief(form)}.")
        path = Path(name if colon and form in forms else one)
        form = form if colon and form in forms else path.suffix.removeprefix(".")
        if form not in forms or path.name == "":
            named = " or ".join(f"NAME.{form}" for form in forms)
            raise ConfigError(
                f"--to: expected {named}, or a form before another name, as in {forms[0]}:NAME; got {brief(one)}."
            )
        if str(path) == "-" and not pipes:
            raise ConfigError(
                f"--to: expected a file; got {brief(one)}, which is not standard output here. Name a file."
            )
        try:
            there, whole = path.is_file(), Path(os.path.realpath(path))
            if whole.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            os.stat(f"{whole.parent}/")  # noqa: PTH116  raises if no folder is there; a Path has no slash at its end
        except OSError as error:  # such as a name that is too long
            raise ConfigError(f"{path}: cannot be written: {error.strerror}.") from None
        if same := [f"{earlier}:{other}" for earlier, other in found if str(whole) == os.path.realpath(other)]:
            raise ConfigError(
                f"--to: expected each file once; {same[0]} and {form}:{path} are one file. Choose another file for one."
            )
        if there and is_stored(whole):
            raise ConfigError(
                f"--to: expected a file of your own; got {path}, in which a run is stored. Choose another."
            )
        if there and not force and form not in appended:
            raise ConfigError(f"{path} is there already. Choose another file with --to, or write over it with --force.")
        found.append((form, path))
    return found


def fail(message: str, code: int) -> NoReturn:
    """End with one line on standard error."""
    typer.echo(f"fedguard: {' '.join(message.split())}", err=True)
    sys.exit(code)


def print_json(value: Any) -> None:
    """Print strict JSON, without NaN or infinity."""
    typer.echo(json.dumps(value, indent=1, allow_nan=False))
