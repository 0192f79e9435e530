"""The sentences of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fedguard.bench.gate.pair import MetricPair
from fedguard.bench.gate.stages import above, mean
from fedguard.bench.gate.watch import GateCriterion
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import CensoredValue, has_lower_bound


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
