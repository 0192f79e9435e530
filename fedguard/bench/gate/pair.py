"""What a gate compares: its criteria, one metric of one cell in two runs seed by seed, and the sentences about both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from fedguard.bench.gate.snapshot import SnapshotPosition
from fedguard.bench.gate.stages import above, mean
from fedguard.bench.gate.verdict import Judgment, Word
from fedguard.config.schema import GateMetric, GateSection
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import CensoredValue, has_lower_bound

#: Relative change of a computed metric below which it counts as rounding.
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
        """How much worse the metric is; for computed metrics, rounding counts as 0.

        For the cost of reaching a target: ``inf`` if the target was reached before and is not now, ``-inf`` if it is reached
        now and was not before, and NaN if it was reached in neither run, since nothing is known then.
        """
        never = isinstance(before, CensoredValue), isinstance(after, CensoredValue)
        if any(never):
            return math.nan if all(never) else math.inf if never[1] else -math.inf
        drop = before - after if self.higher_is_better else after - before
        return 0.0 if self.is_computed and abs(drop) <= ROUNDING * abs(before) else drop

    @property
    def is_computed(self) -> bool:
        """Whether the metric is computed from the settings, so that its drop has no sampling error (`Metric.computed`)."""
        return FIGURES[self.figure].computed


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


@dataclass(frozen=True)
class MetricPair:
    """One metric of one cell, on the seeds that both runs have."""

    position: SnapshotPosition
    watch: GateCriterion
    seeds: tuple[int, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def by_seed(self) -> dict[int, float]:
        """The drop by seed, without seeds that reached the target in neither run."""
        found = map(self.watch.drop, self.before, self.after)
        return {seed: drop for seed, drop in zip(self.seeds, found, strict=True) if not math.isnan(drop)}

    @property
    def drops(self) -> tuple[float, ...]:
        return tuple(self.by_seed.values())

    @property
    def censored(self) -> bool:
        """Whether a seed failed to reach its target in one of the two runs."""
        return has_lower_bound((*self.before, *self.after))

    @property
    def key(self) -> tuple[str, str]:
        return self.position.cell, self.watch.figure

    def judgment(self, verdict: Word, why: str, **more: Any) -> Judgment:
        """A judgment of this pair, with its means, drop, margin and seeds."""
        known: dict[str, Any] = {
            "before": exact_mean(self.before),
            "after": exact_mean(self.after),
            "drop": None if self.censored else exact_mean(self.drops),
            "margin": self.watch.margin,
            "seeds": self.seeds,
        }
        cell, figure = self.key
        return Judgment(
            swept=self.position.swept, cell=cell, figure=figure, verdict=verdict, why=why, **{**known, **more}
        )


def exact_mean(values: Sequence[float]) -> float | None:
    """The mean; None without values, or if one of them is a lower bound."""
    return mean(values) if values and not has_lower_bound(values) else None


def describe_drop(pair: MetricPair) -> str:
    """The result on the suite's own seeds, without a full stop."""
    if pair.censored:
        return f"{describe_reach(pair)}, margin {FIGURES[pair.watch.figure].difference(pair.watch.margin)}"
    known, drop = FIGURES[pair.watch.figure], mean(pair.drops)
    seeds = f"{len(pair.drops)} seeds" if len(pair.drops) > 1 else "one seed"
    if not any(pair.drops):
        return f"the same on {seeds}, to the last bit"
    margin = known.difference(pair.watch.margin)
    if not above(drop, pair.watch.margin) and above(middle := median(pair.drops), pair.watch.margin):
        return f"worse by {known.difference(middle)} in the median of {seeds}, margin {margin}"
    size = known.difference(abs(drop))
    return f"{'worse' if drop > 0 else 'better'} by {size} on {seeds}, margin {margin}"


def describe_reach(pair: MetricPair) -> str:
    """Number of seeds that reached the target in each of the two runs."""
    before, after = (sum(not isinstance(one, CensoredValue) for one in side) for side in (pair.before, pair.after))
    return f"the target was reached on {before} of {len(pair.before)} seeds, and is on {after} now"


def check_bounds(watch: GateCriterion, values: Sequence[float]) -> str | None:
    """The absolute bound that the mean of ``values`` breaks; None if it breaks none."""
    if not values:
        return None
    known, found = FIGURES[watch.figure], mean(values)
    # A mean with lower bounds in it could still be below the ceiling, though some seeds never got there
    if watch.ceiling is not None and has_lower_bound(values):
        never = sum(isinstance(one, CensoredValue) for one in values)
        return f"{never} of {len(values)} seeds never get there, where the ceiling is {known.quantity(watch.ceiling)}."
    if watch.floor is not None and found < watch.floor:
        return f"the mean of {known.quantity(found)} is below the floor of {known.quantity(watch.floor)}."
    if watch.ceiling is not None and found > watch.ceiling:
        return f"the mean of {known.quantity(found)} is above the ceiling of {known.quantity(watch.ceiling)}."
    return None
