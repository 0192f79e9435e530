"""`fedguard accept`: does a rule of your own keep the contract, and what should others know of it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedguard.commands.options import console, print_json
from fedguard.errors import StoreError

if TYPE_CHECKING:
    from fedguard.bench.acceptance.findings import Finding, Verdict

_MARKS = {"failed": "[red]failed [/]", "flagged": "[yellow]flagged[/]", "noted": "[dim]noted  [/]"}


def accept(
    submission: Annotated[
        str,
        typer.Argument(metavar="FILE.py|RULE", help="A file with one defense, or a pipeline such as 'nnm >> krum'."),
    ],
    standard: Annotated[
        str, typer.Option(metavar="YEAR|FILE.yaml", help="The standard by which it is judged.")
    ] = "2026",
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write verdict.json and verdict.md there. Default: FILE.accept."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Check whether a rule keeps the contract of rules, and say what its readers should know.

    The rule runs on several hundred rounds of its own size and beside it, in a process with limits on time and memory. The
    checks: it answers every round that it accepts with finite numbers; the same round has one answer; it keeps nothing from
    trial to trial, changes nothing of others, and reads no clock; neither places nor numbers of clients decide; it sees only
    what it declares and runs on sums of groups if it declares so; it is no better at the sizes of the evaluation than beside
    them; the catalogue does not have it under another name; a round of a million coordinates is affordable.

    Nothing here says that a rule is robust: for this, run it against attacks, as in `fedguard run`. A submitted file is
    code and runs with your rights: check files of strangers in a container without a network.

    Exit code 0 if every check passed, 3 if one failed, 4 if one could not be judged, 2 if there is nothing to check.
    """
    from fedguard.bench.acceptance.accept import accept as judge
    from fedguard.bench.acceptance.words import write_verdict

    progress = Console(stderr=True)
    with progress.status("importing ...") as status:
        found = judge(submission, standard, lambda name: status.update(f"check: {name} ..."))
    folder = to or Path(f"{Path(submission).stem}.accept") if submission.endswith(".py") else to
    if folder is not None:
        try:
            write_verdict(found, folder)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written: {error.strerror}.") from None
    if as_json:
        print_json(found.as_dict())
    else:
        _print_verdict(found, folder)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _print_verdict(found: Verdict, folder: Path | None) -> None:
    from fedguard.bench.acceptance.words import headline

    console.print(f"[bold]{escape(found.submission['pipeline'])}[/]: {escape(headline(found))}", highlight=False)
    for one in found.findings:
        _print_finding(one)
    for reason, names in found.missing_by_reason().items():
        words = escape(f"{', '.join(names)}: {reason}")
        console.print(f"  [yellow]missing[/] {words}", highlight=False, soft_wrap=True)
    console.print(
        f"  {len(found.checked)} checks of standard {found.standard['name']}, {found.seconds:.0f} CPU seconds"
        + ("" if folder is None else f"; written to {folder}"),
        highlight=False,
    )


def _print_finding(one: Finding) -> None:
    console.print(f"  {_MARKS[one.level]} {one.code}: {escape(one.words)}", highlight=False, soft_wrap=True)
    for line in (one.example, one.remedy):
        if line:
            console.print(f"          {escape(line)}", highlight=False, soft_wrap=True)
