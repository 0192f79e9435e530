"""`fedguard audit --mechanism`: what does a mechanism of the user's own prove, show or break of its claim?"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedguard.commands.options import console
from fedguard.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from fedguard.privacy.blackbox.verdict import MechanismAudit

_COLORS = {"consistent": "green", "violated": "red"}

Address = Annotated[
    str | None,
    typer.Option(metavar="FILE.py:NAME", help="Audit your own code instead of a suite: a list of arrays in, one out."),
]
ClaimText = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=VALUE,...",
        help="What it claims: epsilon, delta, per (release or a number of rounds), relation (zero_out, replace or "
        "add_remove), law (gaussian or laplace).",
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Releases over which a bound is given as well.")]
Shapes = Annotated[
    str | None, typer.Option(metavar="784x32,32", help="Shapes of an update's arrays. Default: four small layers.")
]
PresumedClip = Annotated[float, typer.Option(help="Presumed clip of the mechanism: the scale of the search.")]
Samples = Annotated[
    str,
    typer.Option(metavar="auto|N", help="Calls with each input; auto: as the claim needs and the budget allows."),
]
Budget = Annotated[float, typer.Option(help="CPU seconds for a mechanism.")]
SarifFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a mechanism's findings as SARIF 2.1.0.")]

#: Options that say nothing of a mechanism, and options that say nothing of a suite.
OF_SUITES = ("settings", "method", "canaries", "confidence", "name", "store")
OF_MECHANISMS = ("claim", "rounds", "shapes", "clip", "samples", "budget", "sarif")


def check_fitting_options(context: typer.Context, mechanism: bool) -> None:
    """Refuse options that would be ignored: a claim beside a suite would look as if it were audited."""
    for name in OF_SUITES if mechanism else OF_MECHANISMS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--set" if name == "settings" else f"--{name}"
            what = "--mechanism" if mechanism else "a suite"
            raise ConfigError(f"audit: {option} says nothing of {what}. Leave it out.")


def audit_address(
    address: str, *, shapes: str | None, samples: str, sarif: Path | None, as_json: bool, **settings: Any
) -> None:
    """Audit what is at an address, print the result, and exit by the verdict."""
    from fedguard.bench.audits.mechanisms import audit_own, find_mechanism, parse_shapes
    from fedguard.bench.audits.sarif import as_sarif

    calls = _parse_samples(samples)
    given = parse_shapes(shapes) if shapes else None
    progress = Console(stderr=True)
    # What the mechanism prints, thousands of times, must not get between the lines of the result
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        with progress.status("auditing ...") as status:
            found = audit_own(
                find_mechanism(address),
                address=address,
                shapes=given,
                samples=calls,
                before=lambda words: status.update(f"{words} ...") if progress.is_terminal else None,
                **settings,
            )
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
    if sarif is not None:
        try:
            sarif.write_text(as_sarif(found, Path.cwd()), encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{sarif}: cannot be written: {error.strerror}.") from None
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=1))
    else:
        _print_audit(found)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _parse_samples(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdigit():
        raise ConfigError(f"--samples: expected auto or a number of calls; got {text!r}.")
    return int(text)


def _print_audit(found: MechanismAudit) -> None:
    color = _COLORS.get(found.verdict, "yellow")
    console.print(f"[bold]{escape(found.name)}[/]: [{color}]{found.verdict}[/]", highlight=False)
    lines = [f"  {found.words}", f"  claim: {found.claim.describe() if found.claim else 'none'}"]
    for line in lines:
        console.print(escape(line), highlight=False, soft_wrap=True)
    if found.bounds:
        console.print(_table_of_bounds(found))
        for one in found.bounds if any(one.pairs for one in found.bounds) else ():
            pairs = "; ".join(one.pairs)
            how = f"{one.calls} calls with each input of" if one.calls > 1 else "one run"
            line = (
                f"  {one.relation}: {how}: {pairs}. At most epsilon = {one.most_provable:.2g} can be proven with them"
            )
            line += " for one release." if one.calls > 1 else "."
            console.print(escape(line), highlight=False, soft_wrap=True)
    for unpaid in found.unpaid:
        least = "" if unpaid.epsilon is None else f" (epsilon >= {unpaid.epsilon:.3g})"
        console.print(escape(f"  unpaid: {unpaid.code}: {unpaid.words}{least}"), highlight=False, soft_wrap=True)
    console.print(f"  {found.seconds:.1f} CPU seconds, seed {found.seed}", highlight=False)


def _table_of_bounds(found: MechanismAudit) -> Table:
    """Lower bounds on epsilon by kind, beside the exact epsilon and the claim."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("  epsilon", "claimed", "proven", "shown", "exact"):
        table.add_column(head, justify="left" if head.strip() == "epsilon" else "right")
    for one in found.bounds:
        law = f" ({one.shown.law})" if one.shown else ""
        rows = (
            ("one release", 1, one.proven.epsilon, one.shown.epsilon if one.shown else None, one.exact),
            (
                f"{found.rounds} rounds",
                found.rounds,
                one.proven_rounds.epsilon,
                one.shown.over_rounds if one.shown else None,
                one.exact_rounds,
            ),
        )
        for when, rounds, proven, shown, exact in rows[: 1 if found.rounds == 1 else 2]:
            claimed = found.claim.over(rounds)[0] if found.claim and one is found.bounds[0] else None
            shown_text = _number(shown) + (law if shown is not None else "")
            table.add_row(f"  {one.relation}, {when}", _number(claimed), _number(proven), shown_text, _number(exact))
        if one.lives is not None:
            claimed, life = found.claim.over(found.rounds)[0] if found.claim else None, one.lives.shown
            shown_text = "-" if life is None else f"{_number(life.epsilon)} ({life.law})"
            table.add_row(
                f"  {one.relation}, {found.rounds} calls of one instance", _number(claimed), "-", shown_text, "-"
            )
            many = one.lives.proven
            claimed = found.claim.over(many.rounds)[0] if found.claim else None
            row = f"  {one.relation}, {many.rounds // found.rounds} such instances"
            table.add_row(row, _number(claimed), _number(many.epsilon), "-", "-")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else "inf" if math.isinf(value) else f"{value:.3g}"
