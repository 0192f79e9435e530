"""`fedguard audit`: does the code keep the epsilon that it prints?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedguard.commands.audit_mechanism import (
    Address,
    Budget,
    ClaimText,
    PresumedClip,
    Rounds,
    Samples,
    SarifFile,
    Shapes,
    audit_address,
    check_fitting_options,
)
from fedguard.commands.options import Settings, Store, console
from fedguard.errors import ConfigError

if TYPE_CHECKING:
    from fedguard.bench.audits.suites import CellAudit

_COLORS = {"consistent": "green", "violated": "red"}


def audit(
    context: typer.Context,
    suite: Annotated[
        Path | None, typer.Argument(help="A suite file, such as examples/privacy.yaml.", metavar="[SUITE]")
    ] = None,
    settings: Settings = [],  # noqa: B006  typer needs a literal
    method: Annotated[
        str, typer.Option(help="gdp_split, clopper_pearson, one_run, fdp_one_run or one_shot (an estimate).")
    ] = "gdp_split",
    canaries: Annotated[int, typer.Option(min=10, help="How many are in, and as many out, on average.")] = 1000,
    confidence: Annotated[
        float, typer.Option(help="Of the verdict: right code is called violated no more often.")
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the canaries and of all noise; of a mechanism's inputs.")] = 0,
    mechanism: Address = None,
    claim: ClaimText = None,
    rounds: Rounds = 50,
    shapes: Shapes = None,
    clip: PresumedClip = 1.0,
    samples: Samples = "auto",
    budget: Budget = 120.0,
    sarif: SarifFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    name: Annotated[
        str | None, typer.Option(help="The run that the result is stored with. Default: the suite's name.")
    ] = None,
    store: Store = Path("runs"),
) -> None:
    """Run the code that adds a suite's noise on canaries, and compare the result with the accountant's epsilon.

    The result is stored in the folder of the suite's run, if there is one: the dashboard shows it beside the claims.

    With --mechanism, audit your own code as a black box: what it proves, shows or breaks of its claim.

    Exit code 0 if all is consistent, 3 if a claim is violated, 4 if there is nothing to audit or to judge.
    """
    if (suite is None) == (mechanism is None):
        raise ConfigError("audit: expected a SUITE, or --mechanism FILE.py:NAME; got both or neither.")
    check_fitting_options(context, mechanism is not None)
    if mechanism is not None:
        settings_of_it = {"claim": claim, "rounds": rounds, "clip": clip, "budget": budget, "seed": seed}
        audit_address(mechanism, shapes=shapes, samples=samples, sarif=sarif, as_json=as_json, **settings_of_it)
        return
    assert suite is not None
    from fedguard import api
    from fedguard.bench.audits.cells import audit_suite

    laid_out = api.lay_out(suite, settings)[1]
    progress = Console(stderr=True)  # beside the result, which may be JSON
    with progress.status("auditing ...") as status:

        def before(what: str) -> None:
            if progress.is_terminal:
                status.update(f"{what} ...")
            else:
                typer.echo(f"auditing: {what}", err=True)

        found = audit_suite(laid_out, method=method, canaries=canaries, confidence=confidence, seed=seed, before=before)
    if as_json:
        typer.echo(json.dumps([one.as_dict() for one in found], indent=1))
    else:
        _tell(found)
    said = _store_findings(
        store / (name or laid_out.suite.name), [cell.id for _, cell in laid_out.positions], found, method
    )
    if as_json:
        typer.echo(said, err=True)
    else:
        _say(said)
    verdicts = {one.audit.verdict for one in found}
    if "violated" in verdicts:
        raise typer.Exit(3)
    # Inconclusive audits, and no audit at all: neither is a pass
    if verdicts != {"consistent"}:
        raise typer.Exit(4)


def _store_findings(folder: Path, cells: Sequence[str], found: Sequence[CellAudit], method: str) -> str:
    """Store the audit with the run of its suite; return where, or why not."""
    from fedguard.bench.audits.suites import FILE, store_audit
    from fedguard.bench.results.run import Run

    if not found:
        return "Nothing is stored."
    if not (folder / "manifest.json").is_file():
        return f"Not stored, for there is no run {folder}: `fedguard run SUITE` makes one, --name names another."
    run = Run.open(folder)
    stored = store_audit(run.folder, cells, found, method)
    return " ".join([f"Stored in {run.folder.path / FILE}.", *stored.doubts(run)])


def _tell(found: Sequence[CellAudit]) -> None:
    if not found:
        _say("Nothing to audit: no cell that may run adds noise for privacy.")
    for one in found:
        audited, bound = one.audit, one.audit.bound
        color = _COLORS.get(audited.verdict, "yellow")
        console.print(f"[bold]{escape(audited.subject)}[/]: [{color}]{audited.verdict}[/]", highlight=False)
        _say(f"  {audited.words}")
        alike = f", and {len(one.cells) - 1} alike" if len(one.cells) > 1 else ""
        _say(f"  audited for: {one.cells[0]}{alike}")
        sure = "an estimate" if bound.confidence is None else f"{bound.confidence:.0%} confidence"
        _say(f"  lower bound: {bound.epsilon:.4g} by {bound.method}, {sure}, {audited.canaries} canaries")
        if bound.assumes:
            _say(f"  which assumes: {bound.assumes}")
        for line in audited.claim.splitlines():
            if not line.startswith("assumes"):  # they are in the JSON, and in every record
                _say(f"  claim: {line}")
        for check in audited.checks:
            mark = "[green]passed[/]" if check.passed else "[red]failed[/]"
            console.print(f"  {check.name}: {mark}, p = {check.p_value:.2g}; {escape(check.words)}", highlight=False)


def _say(line: str) -> None:
    console.print(escape(line), highlight=False, soft_wrap=True)
