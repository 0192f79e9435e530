"""The sentences of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedguard.bench.gate.stages import mean
from fedguard.bench.gate.watch import Watched, difference, shown


class _Pair(Protocol):
    """What is compared; see `fedguard.bench.gate.judge.Pair`."""

    @property
    def watch(self) -> Watched: ...
    @property
    def drops(self) -> Sequence[float]: ...


def said(pair: _Pair) -> str:
    """What the suite's own seeds show, without a full stop."""
    figure, drop = pair.watch.figure, mean(pair.drops)
    seeds = f"{len(pair.drops)} seeds" if len(pair.drops) > 1 else "one seed"
    if not any(pair.drops):
        return f"the same on {seeds}, to the last bit"
    size = difference(figure, abs(drop))
    return f"{'worse' if drop > 0 else 'better'} by {size} on {seeds}, margin {difference(figure, pair.watch.margin)}"


def bound(watch: Watched, values: Sequence[float]) -> str | None:
    """Which absolute bound the mean of ``values`` breaks, if it does."""
    if not values:
        return None
    found = mean(values)
    if watch.floor is not None and found < watch.floor:
        return f"the mean of {shown(watch.figure, found)} is below the floor of {shown(watch.figure, watch.floor)}."
    if watch.ceiling is not None and found > watch.ceiling:
        return f"the mean of {shown(watch.figure, found)} is above the ceiling of {shown(watch.figure, watch.ceiling)}."
    return None
