"""One figure of one cell in two runs, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.bench.gate.snapshot import Position
from fedguard.bench.gate.stages import mean
from fedguard.bench.gate.verdict import Judgement, Word
from fedguard.bench.gate.watch import Watched
from fedguard.metrics.stats import censored


@dataclass(frozen=True)
class Pair:
    """One figure of one cell, on the seeds that both runs have."""

    position: Position
    watch: Watched
    seeds: tuple[int, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def by_seed(self) -> dict[int, float]:
        """The drop of each seed of which anything is known."""
        found = map(self.watch.drop, self.before, self.after)
        return {seed: drop for seed, drop in zip(self.seeds, found, strict=True) if not math.isnan(drop)}

    @property
    def drops(self) -> tuple[float, ...]:
        return tuple(self.by_seed.values())

    @property
    def censored(self) -> bool:
        """Whether a seed never reached a target in one of the two runs."""
        return censored((*self.before, *self.after))

    @property
    def key(self) -> tuple[str, str]:
        return self.position.cell, self.watch.figure

    def judgement(self, verdict: Word, why: str, **more: Any) -> Judgement:
        """A verdict, with what is known of this pair."""
        known: dict[str, Any] = {
            "before": known_mean(self.before),
            "after": known_mean(self.after),
            "drop": None if self.censored else known_mean(self.drops),
            "margin": self.watch.margin,
            "seeds": self.seeds,
        }
        cell, figure = self.key
        return Judgement(
            swept=self.position.swept, cell=cell, figure=figure, verdict=verdict, why=why, **{**known, **more}
        )


def known_mean(values: Sequence[float]) -> float | None:
    """None of none, and where one is a lower bound."""
    return mean(values) if values and not censored(values) else None
