"""`fedguard secagg`: parameters of secure aggregation, a round step by step, and attacks on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedguard.commands.command import Command
from fedguard.errors import ConfigError

if TYPE_CHECKING:
    from fedguard.secagg.contest import ContestResult

app = typer.Typer(
    name="secagg",
    help="Secure aggregation by itself: its parameters, a round step by step, and the attacks on it.",
    invoke_without_command=True,
)
console = Console()

Json = Annotated[bool, typer.Option("--json", help="The result as JSON.")]


@app.callback()
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(cls=Command)
def params(
    n: Annotated[int, typer.Option("--clients", "-n", help="Number of clients.")] = 100,
    gamma: Annotated[
        float, typer.Option(help="Share of them that may collude with a malicious server, in [0, 1).")
    ] = 0.1,
    dropout: Annotated[float, typer.Option(help="Share of them that may drop out, in [0, 1).")] = 0.1,
    sparse: Annotated[bool, typer.Option("--sparse", help="The sparse graph even for up to 100 clients.")] = False,
    semi_honest: Annotated[
        bool,
        typer.Option("--semi-honest", help="Without the consistency round: the server is trusted to split no views."),
    ] = False,
    grinding: Annotated[
        int, typer.Option(min=0, help="log2 of the graphs that a malicious server may try. Bell et al. reckon with 0.")
    ] = 40,
    as_json: Json = False,
) -> None:
    """Find neighbors, threshold and quorum for n clients, and what they guarantee."""
    from fedguard.secagg.parameters import choose

    found = choose(n, gamma, dropout, attested=not semi_honest, complete_up_to=0 if sparse else 100, grinding=grinding)
    if as_json:
        typer.echo(json.dumps({name: value for name, value, _ in found.describe()}, indent=1))
        return
    table = Table("parameter", "value", "meaning", box=None, header_style="bold")
    for row in found.describe():
        table.add_row(*map(escape, row))
    console.print(table)


@app.command(cls=Command)
def demo(
    clients: Annotated[int, typer.Option("--clients", "-n", min=3, max=50, help="Number of clients.")] = 5,
    drop: Annotated[
        list[str],
        typer.Option(metavar="STEP:CLIENT", help="A client that is silent from a step on, as in unmask:2. Repeatable."),
    ] = ["masked_input:3"],  # noqa: B006
    colluding: Annotated[float, typer.Option(help="Share of the clients that may collude with the server.")] = 0.0,
) -> None:
    """Show one round message by message: what each client has, what the server sees, and what comes out.

    The steps are advertise_keys, share_keys, masked_input, consistency and unmask. This is the real protocol with fresh keys,
    so the masked inputs differ each time, and the sum does not.
    """
    from fedguard.bench.explain.session import play
    from fedguard.bench.pages.protocol import draw_steps, summarize_round
    from fedguard.bench.pages.terminal import render_terminal

    played = play(clients, _parse_dropouts(drop), colluding)
    console.print(render_terminal([summarize_round(played), *draw_steps(played, "MASKED")]), highlight=False)
    if played.total is None:
        raise ConfigError(f"The round was aborted, as it must be: {played.aborted}")


@app.command()
def attack(
    name: Annotated[str, typer.Argument(help="An attack of `fedguard list protocol`, or all.", metavar="NAME|all")],
    weak: Annotated[
        bool, typer.Option("--weak", help="Against clients with the planted weakness that the attack is made for.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let a malicious server or client attack real parties, and say what it learned and who stopped it.

    Exit code 3 if an attack breaks a guarantee of the protocol, unless by a planted weakness.
    """
    from fedguard.registry import load_registry
    from fedguard.secagg.contest import contest

    known = load_registry()
    names = known.names("protocol") if name == "all" else [name]
    attacks = [known.build("protocol", one) for one in names]
    if weak:
        without = [one.name for one in attacks if one.weak is None]
        if name != "all" and without:
            raise ConfigError(f"{name} has no planted weakness. Leave out --weak.")
        attacks = [one for one in attacks if one.weak is not None]
    findings: list[ContestResult] = []
    for one in attacks:
        with console.status(f"{one.name} ..."):
            findings.append(contest(one, weak=weak))
    if as_json:
        typer.echo(json.dumps([_entry(finding) for finding in findings], indent=1))
    elif name == "all":
        _tabulate(attacks, findings)
    else:
        _tell(attacks[0], findings[0])
    if not weak and any(finding.verdict == "succeeded" for finding in findings):
        raise typer.Exit(3)


_COLORS = {"defeated": "green", "limit": "yellow", "succeeded": "red"}


def _tabulate(attacks: Sequence[Any], findings: Sequence[ContestResult]) -> None:
    table = Table("attack", "by", "verdict", "why", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for one, finding in zip(attacks, findings, strict=True):
        why = {"defeated": one.stopped_by, "limit": one.outside}.get(finding.verdict, f"learned {finding.learned}")
        table.add_row(finding.attack, one.by, f"[{_COLORS[finding.verdict]}]{finding.verdict}[/]", escape(why))
    console.print(table)
    console.print("\n`fedguard secagg attack NAME` tells one of them step by step.", highlight=False)


def _tell(attack: Any, finding: ContestResult) -> None:
    verdict = f"[{_COLORS[finding.verdict]}]{finding.verdict}[/]"
    console.print(f"[bold]{finding.attack}[/] against {finding.variant}: {verdict}", highlight=False)
    _say(f"{attack.summary()}\n")
    for line in finding.story:
        _say(f"  {line}")
    _say(f"\nLearned: {finding.learned}.")
    if finding.verdict == "limit":
        _say(f"A limit of what masking promises: {attack.outside}")
    elif finding.verdict == "defeated":
        _say(f"Stopped by: {attack.stopped_by}")
    for line, count in _group_errors(finding.stopped_by):
        _say(f"  {line}" + (f" (and {count - 1} more like it)" if count > 1 else ""))
    for key, value in finding.figures.items():
        _say(f"  {key.replace('_', ' ')}: {value:g}")


def _group_errors(errors: Sequence[str]) -> list[tuple[str, int]]:
    """The first of each kind of error, and their number."""
    kinds: dict[str, list[str]] = {}
    for error in errors:
        kinds.setdefault(error.partition(" while ")[0], []).append(error)
    return [(alike[0], len(alike)) for alike in kinds.values()]


def _entry(finding: ContestResult) -> dict[str, Any]:
    return {
        "attack": finding.attack,
        "variant": finding.variant,
        "verdict": finding.verdict,
        "learned": finding.learned,
        "stopped_by": list(finding.stopped_by),
        "figures": dict(finding.figures),
        "story": list(finding.story),
    }


def _parse_dropouts(pairs: list[str]) -> dict[str, list[int]]:
    drop: dict[str, list[int]] = {}
    for pair in pairs:
        step, _, client = pair.partition(":")
        if not client.isdecimal():
            raise ConfigError(f"--drop {pair}: expected a step and a client, as in masked_input:3.")
        drop.setdefault(step, []).append(int(client))
    return drop


def _say(line: str) -> None:
    console.print(escape(line), highlight=False)
