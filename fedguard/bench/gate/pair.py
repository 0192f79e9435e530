"""One metric of one cell in two runs, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.bench.gate.snapshot import SnapshotPosition
from fedguard.bench.gate.stages import mean
from fedguard.bench.gate.verdict import Judgment, Word
from fedguard.bench.gate.watch import GateCriterion
from fedguard.metrics.stats import has_lower_bound


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
