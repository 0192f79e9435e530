"""Which figures a gate watches, and how much worse each may become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, nan

from fedguard.config.schema import GateMetric, GateSection
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import CensoredValue

#: Below this share of its own size a change is one of rounding.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class GateCriterion:
    """One figure that is watched.

    Attributes:
        margin: by how much a cell's mean may be worse, in the figure's unit.
        floor, ceiling: absolute bounds on a cell's mean over seeds.
    """

    figure: str
    higher_is_better: bool
    margin: float
    floor: float | None = None
    ceiling: float | None = None

    def drop(self, before: float, after: float) -> float:
        """By how much it is worse; differences of rounding count as none.

        Of what it takes to a target: infinity where it was reached before and never now, and less than anything the other way
        round. NaN where neither ever reached it: nothing is known.
        """
        never = isinstance(before, CensoredValue), isinstance(after, CensoredValue)
        if any(never):
            return nan if all(never) else inf if never[1] else -inf
        drop = before - after if self.higher_is_better else after - before
        return 0.0 if abs(drop) <= ROUNDING * abs(before) and self.figure == "epsilon" else drop


def select_figures(gate: GateSection, figures: Iterable[str]) -> tuple[GateCriterion, ...]:
    """What a gate watches.

    Args:
        figures: those that any cell has. They count only if the suite names none itself.
    """
    there = set(figures)
    named = gate.metrics or {name: GateMetric() for name, figure in FIGURES.items() if figure.watched and name in there}
    return tuple(
        GateCriterion(
            figure=figure,
            higher_is_better=FIGURES[figure].more_is_better,
            margin=usual_margin(figure) if said.margin is None else said.margin,
            floor=said.floor,
            ceiling=said.ceiling,
        )
        for figure, said in named.items()
    )


def usual_margin(figure: str) -> float:
    """By how much a cell's mean may be worse where the suite does not say; 0 for figures of which it has to."""
    return FIGURES[figure].margin or 0.0
