"""`fedguard conform`: does the simulation say what real processes do?"""

from __future__ import annotations

from typing import Annotated

import typer

from fedguard.commands.options import Force, console, files_of, print_json
from fedguard.errors import ConfigError


def conform(
    architecture: Annotated[
        list[str], typer.Argument(metavar="ARCHITECTURE", help="An architecture, such as all_reduce. One or more.")
    ],
    engine: Annotated[
        str, typer.Option(metavar="gloo|ray|flower|deployment", help="What the real processes are and how they talk.")
    ],
    attack: Annotated[
        str | None,
        typer.Option(
            help="The attack of the second of both trainings, by one malicious client. (ipm; of actors reward_flip)"
        ),
    ] = None,
    defense: Annotated[str, typer.Option(help="The defense of both.")] = "mean",
    nodes: Annotated[int, typer.Option(min=2, max=64, help="Clients, or nodes.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the training.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of both sides.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    to: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.md", help="Write the table as Markdown, as in docs/conformance.md. Repeatable."),
    ] = None,
    force: Force = False,
) -> None:
    """Train on real processes and in simulation, with the same batches, and say how far apart they end.

    This is done without an attack and with one. With `--engine gloo` each node is a process that sends vectors to its neighbors
    over sockets. With `--engine ray` the clients are in Ray actors. With `--engine flower` models travel as Flower's messages,
    and with `--engine deployment` they do so between a SuperLink and SuperNodes, which are processes on this machine. If
    clients do not wait for each other, the simulation follows the order in which the real updates arrived.

    Exit code 0 if the largest difference is at most 1e-5 of the distance that the model has moved, 3 otherwise.
    """
    from fedguard.bench.conformance.conform import conform as held
    from fedguard.bench.conformance.tables import as_markdown, table

    files = files_of(to, ("md",), force)
    found = held(architecture, engine, attack=attack, defense=defense, nodes=nodes, rounds=rounds, seed=seed)
    if as_json:
        print_json([one.as_dict() for one in found])
    else:
        console.print(table(found))
    for _, path in files:
        try:
            path.write_text(as_markdown(found), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}.") from None
    if not all(one.passed for one in found):
        raise typer.Exit(3)
