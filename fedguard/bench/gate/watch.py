"""The metrics that a gate watches, and how much worse each may become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, nan

from fedguard.config.schema import GateMetric, GateSection
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import CensoredValue

#: Relative change of an epsilon below which it counts as rounding.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class GateCriterion:
    """One watched metric.

    Attributes:
        margin: allowed drop of a cell's mean, in the unit of the metric.
        floor, ceiling: absolute bounds on a cell's mean over seeds.
    """

    figure: str
    higher_is_better: bool
    margin: float
    floor: float | None = None
    ceiling: float | None = None

    def drop(self, before: float, after: float) -> float:
        """How much worse the metric is; for epsilon, rounding counts as 0.

        For the cost of reaching a target: ``inf`` if the target was reached before and is not now, ``-inf`` if it is reached
        now and was not before, and NaN if it was reached in neither run, since nothing is known then.
        """
        never = isinstance(before, CensoredValue), isinstance(after, CensoredValue)
        if any(never):
            return nan if all(never) else inf if never[1] else -inf
        drop = before - after if self.higher_is_better else after - before
        return 0.0 if abs(drop) <= ROUNDING * abs(before) and self.figure == "epsilon" else drop


def select_figures(gate: GateSection, figures: Iterable[str]) -> tuple[GateCriterion, ...]:
    """The criteria of a gate.

    Args:
        figures: metrics that any cell has; used only if the suite names none itself.
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
    """The default allowed drop of a cell's mean; 0 for metrics without a default, for which the suite has to set it."""
    return FIGURES[figure].margin or 0.0
