"""The sentences of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedguard.bench.gate.stages import mean
from fedguard.bench.gate.watch import Watched
from fedguard.metrics.figures import FIGURES


class _Pair(Protocol):
    """What is compared; see `fedguard.bench.gate.judge.Pair`."""

    @property
    def watch(self) -> Watched: ...
    @property
    def drops(self) -> Sequence[float]: ...


def said(pair: _Pair) -> str:
    """What the suite's own seeds show, without a full stop."""
    known, drop = FIGURES[pair.watch.figure], mean(pair.drops)
    seeds = f"{len(pair.drops)} seeds" if len(pair.drops) > 1 else "one seed"
    if not any(pair.drops):
        return f"the same on {seeds}, to the last bit"
    size, margin = known.difference(abs(drop)), known.difference(pair.watch.margin)
    return f"{'worse' if drop > 0 else 'better'} by {size} on {seeds}, margin {margin}"


def bound(watch: Watched, values: Sequence[float]) -> str | None:
    """Which absolute bound the mean of ``values`` breaks, if it does."""
    if not values:
        return None
    known, found = FIGURES[watch.figure], mean(values)
    if watch.floor is not None and found < watch.floor:
        return f"the mean of {known.quantity(found)} is below the floor of {known.quantity(watch.floor)}."
    if watch.ceiling is not None and found > watch.ceiling:
        return f"the mean of {known.quantity(found)} is above the ceiling of {known.quantity(watch.ceiling)}."
    return None
