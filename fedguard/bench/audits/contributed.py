"""Contributions of the clients of a cell over several seeds: a table for people, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fedguard.bench.audits.contribution import Contribution
from fedguard.bench.results.places import label
from fedguard.config import Plan, PlannedCell
from fedguard.errors import ConfigError
from fedguard.metrics.stats import ENOUGH, Estimate, student

_NOTE = (
    "95 %: the interval over the orders that were drawn, of this one training: shares whose intervals meet are not to be "
    "ranked. Another seed deals other examples, and may take other clients for malicious ones."
)


@dataclass(frozen=True)
class Contributions:
    """The contributions of the clients to the trainings of one cell.

    Attributes:
        label: the cell, in words.
        measure: ``accuracy`` in [0, 1], or ``loss``: minus the loss in nats.
        orders: number of orders drawn in each round.
        found: the contributions by seed.
    """

    label: str
    measure: str
    orders: int
    found: Mapping[int, Contribution]

    def half_width(self, seed: int, client: int) -> float | None:
        """Half width of Student's 95 % interval over orders, with one degree of freedom less than orders; None if too few."""
        if self.orders < ENOUGH:
            return None
        from scipy.special import stdtrit

        return float(stdtrit(self.orders - 1, 0.975)) * self.found[seed].errors[client]

    def side(self, malicious: bool) -> Estimate | None:
        """The mean share of an honest or of a malicious client over seeds; None if a seed has no such client."""
        means = []
        for one in self.found.values():
            shares = [share for client, share in one.shares.items() if (client in one.malicious) is malicious]
            if not shares:
                return None
            means.append(sum(shares) / len(shares))
        return student(means) if len(means) >= ENOUGH else Estimate(sum(means) / len(means), None, None, len(means))

    def as_dict(self) -> dict[str, Any]:
        """JSON, in the unit of the measure."""
        return {
            "label": self.label,
            "measure": self.measure,
            "orders": self.orders,
            "seeds": [
                {
                    "seed": seed,
                    "gain": one.gain,
                    "rounds": len(one.rounds),
                    "evaluations": one.evaluations,
                    "clients": [
                        {
                            "client": client,
                            "share": one.shares[client],
                            "half_width": self.half_width(seed, client),
                            "malicious": client in one.malicious,
                        }
                        for client in sorted(one.shares)
                    ],
                }
                for seed, one in self.found.items()
            ],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._parts()

    def _parts(self) -> Iterator[RenderableType]:
        unit = "points of accuracy" if self.measure == "accuracy" else "nats of loss"
        yield Text(f"{self.label}: what each client contributed, in {unit}", "bold")
        for seed, one in self.found.items():
            yield Text(
                f"\nseed {seed}: the model gained {self._text(one.gain)} in {len(one.rounds)} aggregates; "
                f"{one.evaluations:,} coalitions valued"
            )
            yield self._table(seed, one)
        for side, words in ((False, "an honest client"), (True, "a malicious client")):
            if (mean := self.side(side)) is not None:
                half = (
                    ""
                    if mean.low is None or mean.high is None
                    else f" [{self._text(mean.low)}, {self._text(mean.high)}] (95 % over {mean.seeds} seeds)"
                )
                yield Text(f"{words}, on average: {self._text(mean.mean)}{half}")
        yield Text(_NOTE, "dim")

    def _table(self, seed: int, one: Contribution) -> Table:
        table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("client", "share", "95 %"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("")
        for client in sorted(one.shares, key=lambda client: -one.shares[client]):
            half, bad = self.half_width(seed, client), client in one.malicious
            share = one.shares[client]
            ends = "-" if half is None else f"[{self._text(share - half)}, {self._text(share + half)}]"
            fields = (str(client), self._text(share), ends)
            table.add_row(*map(Text, fields), Text("malicious" if bad else "", "red"))
        return table

    def _text(self, share: float) -> str:
        return f"{100 * share:.1f}" if self.measure == "accuracy" else f"{share:.3f}"


def cell_named(plan: Plan, name: str | None) -> tuple[str, PlannedCell]:
    """Label and cell of the only label that contains these words; a suite with one cell needs no words.

    Raises:
        ConfigError: no cell matches, or several do.
    """
    cells = {label(swept): cell for swept, cell in plan.positions}
    fits = [words for words in cells if name is None or name in words]
    if name in cells:
        fits = [name]
    if len(fits) == 1:
        return fits[0], cells[fits[0]]
    several = f"{len(fits)} cells" if name is None else f"{len(fits)} of them have {name!r}"
    shown = "; ".join(fits[:5] or list(cells)[:5])
    raise ConfigError(
        f"contribution: expected the words of one cell; {several}. Name one, or a part of it that no other has: {shown}"
        f"{' ...' if len(fits or cells) > 5 else '.'}"
    )
