"""Which figures a gate watches, and how much worse each may become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedguard.bench.matrix import FIGURES, Figure
from fedguard.config.schema import GateMetric, GateSection

#: Margins in the figures' own units; of shares and AUCs, 0.02 is 2 points. The smallest rise of epsilon counts.
MARGINS = {
    "final_accuracy": 0.02,
    "attack_success": 0.05,
    "psnr_gain": 1.0,
    "recovered": 0.05,
    "label_accuracy": 0.05,
    "membership_auc": 0.03,
    "property_auc": 0.05,
    "epsilon": 0.0,
}
#: Watched only if the suite says so: they repeat others, or are too noisy to be watched unasked.
MARGINS_ON_REQUEST = {
    "best_accuracy": 0.02,
    "worst_class_accuracy": 0.05,
    "accuracy_drop": 0.02,
    "absence": 0.02,
    "harm": 0.02,
    "psnr": 1.0,
    "membership_tpr": 0.05,
}
#: Below this share of its own size a change is one of rounding.
ROUNDING = 1e-6

_EPSILON = Figure("epsilon", False, "", bounds=None)


@dataclass(frozen=True, kw_only=True)
class Watched:
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
        """By how much it is worse; differences of rounding count as none."""
        drop = before - after if self.higher_is_better else after - before
        return 0.0 if abs(drop) <= ROUNDING * abs(before) and self.figure == "epsilon" else drop


def watched(gate: GateSection, figures: Iterable[str]) -> tuple[Watched, ...]:
    """What a gate watches.

    Args:
        figures: those that any cell has. They count only if the suite names none itself.
    """
    there = set(figures)
    named = gate.metrics or {figure: GateMetric() for figure in MARGINS if figure in there}
    return tuple(
        Watched(
            figure=figure,
            higher_is_better=figure_of(figure).more_is_better,
            margin=(MARGINS | MARGINS_ON_REQUEST)[figure] if said.margin is None else said.margin,
            floor=said.floor,
            ceiling=said.ceiling,
        )
        for figure, said in named.items()
    )


def figure_of(figure: str) -> Figure:
    """What a figure is; epsilon, of which there is no matrix, as well."""
    return _EPSILON if figure == "epsilon" else FIGURES[figure]


def shown(figure: str, value: float) -> str:
    """``81.2 %``, ``17.3 dB``, ``2.9``."""
    kind = figure_of(figure)
    return f"{kind.text(value)} {kind.unit}".strip()


def difference(figure: str, value: float) -> str:
    """``6.1 points``, ``1.2 dB``, ``0.03``: a difference of two shares is in points."""
    kind = figure_of(figure)
    unit = "points" if kind.unit == "%" else kind.unit
    return f"{kind.text(value)} {unit}".strip()
