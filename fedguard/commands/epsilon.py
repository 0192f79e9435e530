"""`fedguard epsilon`: what noise proves, or how much of it a target needs."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from fedguard.contracts import Epsilon

console = Console()


def epsilon(
    noise_multiplier: Annotated[
        float, typer.Option(help="Standard deviation of the noise on a sum, divided by the clip.")
    ] = 1.0,
    sample_rate: Annotated[float, typer.Option(help="Share of the units that a step expects or takes.")] = 0.01,
    steps: Annotated[int, typer.Option(help="Noisy sums that are released: rounds x local steps for DP-SGD.")] = 1000,
    delta: Annotated[float, typer.Option(help="In (0, 1), well below 1 / number of units.")] = 1e-5,
    units: Annotated[
        int | None, typer.Option(min=1, help="How many records or clients there are: delta is held against 1 / n.")
    ] = None,
    accountant: Annotated[str, typer.Option(metavar="prv|rdp|gdp", help="Who counts; gdp only estimates.")] = "prv",
    unit: Annotated[str, typer.Option(metavar="record|client", help="Whose presence is hidden.")] = "record",
    sampling: Annotated[
        str, typer.Option(metavar="poisson|fixed|none|cyclic", help="How a step's units are chosen; fixed needs rdp.")
    ] = "poisson",
    relation: Annotated[
        str | None,
        typer.Option(metavar="add/remove|replace", help="Neighboring inputs. Default: what goes with the sampling."),
    ] = None,
    target: Annotated[
        float | None, typer.Option(metavar="EPSILON", help="Find the least noise multiplier that keeps this epsilon.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
) -> None:
    """Say what the noise of DP-SGD or DP-FedAvg proves: epsilon, with all that it means.

    An epsilon of records says nothing about clients, and an epsilon of Poisson samples nothing about shuffled batches.
    """
    from fedguard.privacy.accountants import ACCOUNTANTS
    from fedguard.privacy.accounting import OutOfRange, UnsupportedEvent, check_delta
    from fedguard.privacy.calibration import gaussian_noise
    from fedguard.privacy.gaussian import epsilon as spent

    if units is not None:
        check_delta(delta, units, unit)
    if target is not None:
        noise_multiplier = gaussian_noise(
            epsilon=target,
            delta=delta,
            sample_rate=sample_rate,
            steps=steps,
            sampling=sampling,
            unit=unit,
            relation=relation,
            accountant=accountant,
        )
    by = partial(spent, noise_multiplier, sample_rate, steps, delta, unit=unit, sampling=sampling, relation=relation)
    found = by(accountant)
    beside: dict[str, Epsilon | str] = {}
    for name in ACCOUNTANTS:
        try:
            beside[name] = by(name)
        except (UnsupportedEvent, OutOfRange) as error:
            beside[name] = str(error)
    if as_json:
        typer.echo(json.dumps(_entry(noise_multiplier, sample_rate, steps, found, beside), indent=1))
        return
    console.print(
        f"noise multiplier {noise_multiplier:.6g}, sample rate {sample_rate:g}, {steps} steps", highlight=False
    )
    console.print(escape(found.describe()), highlight=False)
    # With delta near 1 / n, publishing one random unit in full would be private by definition
    if units is not None and 10 * delta * units > 1:
        console.print(
            f"warning: delta = {delta:g} among {units} {unit}s is above 1 / (10 n) = {1 / (10 * units):.2g}: lower it",
            style="yellow",
            highlight=False,
        )
    table = Table("accountant", "epsilon", "", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name, one in beside.items():
        row = ("-", one) if isinstance(one, str) else (f"{one.value:.3f}", _kind(name, one))
        table.add_row(name, *map(escape, row))
    console.print(table)


def _kind(name: str, found: Epsilon) -> str:
    from fedguard.privacy.accountants import accountant_named

    other = "" if found.accountant == accountant_named(name).name else f", by {found.accountant.partition(' ')[0]}"
    return f"upper bound{other}" if found.bound else "estimate"


def _entry(
    noise_multiplier: float, sample_rate: float, steps: int, found: Epsilon, beside: dict[str, Epsilon | str]
) -> dict[str, Any]:
    """The result as JSON; an infinite epsilon is null."""
    return {
        "noise_multiplier": noise_multiplier,
        "sample_rate": sample_rate,
        "steps": steps,
        **dataclasses.asdict(found),
        "value": _finite(found.value),
        "accountants": {
            name: {"refused": one} if isinstance(one, str) else {"value": _finite(one.value), "bound": one.bound}
            for name, one in beside.items()
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
