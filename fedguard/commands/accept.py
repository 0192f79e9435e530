"""`fedguard accept`: does a rule of your own keep the contract, and what should others know of it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedguard.commands.options import Jobs, console, print_json

if TYPE_CHECKING:
    from fedguard.bench.acceptance.findings import AcceptanceFinding, AcceptanceVerdict
    from fedguard.bench.acceptance.verify import Verification

_MARKS = {"failed": "[red]failed [/]", "flagged": "[yellow]flagged[/]", "noted": "[dim]noted  [/]"}


def accept(
    submission: Annotated[
        str,
        typer.Argument(metavar="FILE.py|RULE", help="A file with one defense, or a pipeline such as 'nnm >> krum'."),
    ],
    stage: Annotated[
        str, typer.Option(metavar="contracts|all", help="The checks of the contract alone, or the trainings as well.")
    ] = "all",
    standard: Annotated[
        str, typer.Option(metavar="YEAR|FILE.yaml", help="The standard by which it is judged.")
    ] = "2026",
    plan: Annotated[
        bool, typer.Option("--plan", help="Say which trainings would run and how long they take, and stop.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare an existing verdict with its file and records, and repeat some trials."),
    ] = False,
    trials: Annotated[
        int, typer.Option(min=1, help="With --verify: how many trials are repeated, drawn at random.")
    ] = 12,
    nonce: Annotated[
        int | None, typer.Option(min=0, help="With --verify: decides which trials are drawn. Default: a random number.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the verdict and its runs. Default: FILE.accept."),
    ] = None,
    jobs: Jobs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Judge a rule of your own: does it keep the contract, and what does the worst attack leave of it?

    First the contract, in about a minute: it answers every round that it accepts with finite numbers; the same round has one
    answer; it keeps nothing from trial to trial, changes nothing of others, and reads no clock; neither places nor numbers of
    clients decide; it sees only what it declares; it is no better at the sizes of the evaluation than beside them; the
    catalog does not have it under another name; a round of a million coordinates is affordable.

    Then, if it holds, the trainings of the standard: in each setting without attack, under the worst attack of the ensemble
    and under backdoors, with seeds drawn from the file's digest. Run the same command again to go on after an interruption.

    No exit code says that a rule is robust. A submitted file is code and runs with your rights: check files of strangers in
    a container without a network.

    With --verify, an existing verdict is compared with its file and its records, its metrics are computed again, and randomly
    drawn trials are repeated.

    Exit code 0 if the verdict is complete and every check passed, 3 if a check failed, 4 if something could not be judged, 2 if
    there is nothing to judge.
    """
    from fedguard.bench.acceptance.accept import accept as judge
    from fedguard.bench.acceptance.accept import default_folder
    from fedguard.bench.acceptance.verify import verify as check_verdict
    from fedguard.bench.running.progress import for_console

    if plan:
        _print_plan(submission, standard)
        return
    folder = to or default_folder(submission)
    progress = Console(stderr=True)
    with progress.status("importing ...") as status:
        if verify:
            checked = check_verdict(submission, folder, standard, trials=trials, nonce=nonce, listener=status.update)
            code = checked.exit_code
        else:
            found = judge(
                submission,
                stage=stage,
                standard=standard,
                folder=folder,
                jobs=jobs,
                before=lambda name: status.stop() if name == "trainings" else status.update(f"check: {name} ..."),
                listener=for_console(progress),
            )
            code = found.exit_code
    if verify:
        _print_verification(checked, as_json)
    elif as_json:
        print_json(found.as_dict())
    else:
        _print_verdict(found, folder)
    if code:
        raise typer.Exit(code)


def _print_verification(found: Verification, as_json: bool) -> None:
    if as_json:
        print_json(found.as_dict())
        return
    same = found.trials - sum(one.code in ("differs", "repeated_within", "not_repeated") for one in found.findings)
    console.print(
        f"{found.records} records; {same} of {found.trials} repeated trials are equal to the last bit (nonce {found.nonce}).",
        highlight=False,
    )
    for one in found.findings:
        _print_finding(one)


def _print_plan(submission: str, standard: str) -> None:
    from fedguard.bench.acceptance.standard import load_standard
    from fedguard.bench.acceptance.submission import read_submission
    from fedguard.bench.acceptance.trainings import plan_cells

    for name, words in plan_cells(read_submission(submission), load_standard(standard)):
        console.print(f"[bold]{escape(name)}[/]: {escape(words)}", highlight=False, soft_wrap=True)


def _print_verdict(found: AcceptanceVerdict, folder: Path) -> None:
    from fedguard.bench.acceptance.words import describe_cell

    console.print(f"[bold]{escape(found.submission['pipeline'])}[/]: {escape(found.headline)}", highlight=False)
    for one in found.findings:
        _print_finding(one)
    for cell in found.cells:
        words = escape(f"{cell.cell}: {describe_cell(cell)}")
        console.print(f"  {words}", highlight=False, soft_wrap=True)
    for reason, names in found.missing_by_reason().items():
        words = escape(f"{', '.join(names)}: {reason}")
        console.print(f"  [yellow]missing[/] {words}", highlight=False, soft_wrap=True)
    told = f"{len(found.checked)} checks of standard {found.standard['name']}, {found.seconds:.0f} CPU seconds"
    console.print(escape(f"  {told}; written to {folder}"), highlight=False, soft_wrap=True)


def _print_finding(one: AcceptanceFinding) -> None:
    console.print(f"  {_MARKS[one.level]} {one.code}: {escape(one.words)}", highlight=False, soft_wrap=True)
    for line in (one.example, one.remedy):
        if line:
            console.print(f"          {escape(line)}", highlight=False, soft_wrap=True)
