"""`fedguard list`, `explain` and `kappa`: what there is, and what it is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedguard.commands.options import console, print_json

if TYPE_CHECKING:
    from fedguard.registry import Registry

Plugins = Annotated[
    list[str],
    typer.Option(
        "--plugin", metavar="MODULE", help="A module with algorithms of your own, here or installed. Repeatable."
    ),
]


def _load_registry(plugins: list[str]) -> Registry:
    """The installed algorithms, and those of modules in the working directory."""
    from fedguard.registry import load_registry

    return load_registry().with_modules(plugins, Path.cwd(), ["--plugin"] * len(plugins))


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="attack, inference, defense, protocol, trigger, data, partition, model, algorithm, masking, noise or "
            "architecture; all of them by default.",
            metavar="[KIND]",
        ),
    ] = None,
    plugin: Plugins = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of {name, kind, needs, source, ...}.")] = False,
) -> None:
    """List attacks, defenses, data sets and all else that a suite can name."""
    from fedguard.bench.explain.listing import kinds_named, listing

    known, kinds = _load_registry(plugin), kinds_named(kind)
    if as_json:
        from fedguard.bench.explain.catalogue import entries  # here, since it loads every algorithm

        print_json(entries(known, kinds))
    else:
        console.print(listing(known, kinds))


def explain(
    name: Annotated[str, typer.Argument(help="An attack, a defense, or anything else that `list` shows.")],
    plugin: Plugins = [],  # noqa: B006
) -> None:
    """Explain one algorithm: formula, parameters, what it needs to see, when it holds, where it comes from."""
    from fedguard.bench.explain.catalogue import Explanation

    console.print(Explanation(_load_registry(plugin), name))


def kappa(
    defense: Annotated[
        str, typer.Argument(help="A defense, such as krum or 'nnm >> trimmed_mean'.", metavar="DEFENSE")
    ],
    n: Annotated[int, typer.Option("--clients", "-n", min=1, help="Number of clients, with one update each.")] = 20,
    f: Annotated[
        int, typer.Option("--malicious", "-f", min=0, help="How many of them are malicious: the f of the rule.")
    ] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the search, and of a rule that draws.")] = 0,
    effort: Annotated[float, typer.Option(help="1 asks the rule 8000 times: some seconds. More finds more.")] = 1.0,
    plugin: Plugins = [],  # noqa: B006
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON, with the worst input; kappa null for unbounded.")
    ] = False,
) -> None:
    """Search for the worst input of a rule, and so for its robustness coefficient kappa.

    A rule R is (f, kappa)-robust if |R(x) - mean_S|² <= kappa * mean over S of |x_i - mean_S|², for every input x and every S
    of n - f updates. The search finds a lower bound of the rule's kappa, with an input that proves it. No rule can be below
    f/(n - 2f). A rule above its published bound is broken, and so is an unbounded rule with a published bound.
    """
    import warnings

    from fedguard import arrays

    known = _load_registry(plugin)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = arrays.kappa(known.pipeline(defense), n=n, f=f, seed=seed, effort=effort)
    for warning in caught:
        typer.echo(f"fedguard: {warning.message}", err=True)
    if as_json:
        print_json(found.entry())
        return
    malicious = sorted(set(range(n)) - set(found.witness[1]))
    console.print(str(found), markup=False, highlight=False)
    console.print(
        f"The worst input is {n} x {found.witness[0].shape[1]}, with malicious rows {malicious}; --json prints it.",
        markup=False,
        highlight=False,
    )
