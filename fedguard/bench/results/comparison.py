"""The comparison of two runs: differences with their intervals, for the terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderResult

from fedguard.bench.terminal.printed import Printed
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import ENOUGH, Estimate, PairedDifference, p_text

#: Level of the adjusted p-values below which a difference counts as found; it bounds the family-wise error rate.
LEVEL = 0.05

#: Of b against a. ``undecided`` may be due to chance; ``untested`` has no common seeds.
Direction = Literal["better", "worse", "undecided", "identical", "untested"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One metric at one position of both matrices, b against a.

    Attributes:
        swept: attack, defense, and each other swept key.
        figure: a key of `FIGURES`; means and differences are in the units of `Run.rows` (shares in [0, 1]).
        a, b: estimates over the common seeds; without common seeds, over each run's own.
        paired: the test of the differences b - a over common seeds; None without common seeds.
        seeds: the common seeds; differences: b - a on each of them.
        half_width: half width of the interval of their mean, at a level adjusted for all tests of the comparison: the interval
            excludes 0 exactly if the direction is decided.
        p_adjusted: the p-value adjusted by Holm over all tests of the comparison.
        cells: the ids of the cell in a and in b; positions may share a cell.
    """

    swept: Mapping[str, str]
    figure: str
    a: Estimate
    b: Estimate
    paired: PairedDifference | None
    seeds: tuple[int, ...] = ()
    p_adjusted: float | None = None
    differences: tuple[float, ...] = field(default=(), repr=False)
    half_width: float | None = None
    cells: tuple[str, str] = ("", "")

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval, cut to the possible range of a difference; None for too few pairs or without spread."""
        if self.paired is None or not self.half_width or len(self.differences) < ENOUGH:
            return None
        bounds = FIGURES[self.figure].bounds
        most = math.inf if bounds is None else bounds[1] - bounds[0]
        return max(-most, self.paired.mean - self.half_width), min(most, self.paired.mean + self.half_width)

    @property
    def direction(self) -> Direction:
        if self.paired is None:
            return "untested"
        if self.paired.mean == 0 and not self.paired.half_width:
            return "identical"
        return self.side if self.p_adjusted is not None and self.p_adjusted < LEVEL else "undecided"

    @property
    def suggestive(self) -> bool:
        """Whether it is undecided among all cells, though its own p-value is below `LEVEL`: to be tried on fresh seeds."""
        p_value = self.paired.p_value if self.paired else None
        return self.direction == "undecided" and p_value is not None and p_value < LEVEL

    @property
    def side(self) -> Literal["better", "worse"]:
        """On which side the mean is, whether or not chance may have put it there."""
        return "better" if (self.b.mean > self.a.mean) == FIGURES[self.figure].more_is_better else "worse"

    @property
    def size(self) -> float:
        """The absolute difference of the means."""
        return 0.0 if self.paired is None else abs(self.paired.mean)

    def words(self) -> str:
        """``b is worse by 3.1 points [1.9, 4.3]``."""
        known = FIGURES[self.figure]
        if self.paired is None:
            return (
                f"a {known.format_estimate(self.a)}, b {known.format_estimate(self.b)} {known.unit}".strip()
                + ": no common seed, no test"
            )
        if self.direction == "identical":
            return "identical"
        unit = known.unit_of_differences
        pairs, mean = len(self.differences), abs(self.paired.mean)
        few = "" if pairs >= ENOUGH else f" on {pairs} common {'seed' if pairs == 1 else 'seeds'}"
        few = f" on each of {pairs} seeds" if self.half_width == 0 else few
        said = " ".join(f"b is {self.side} by {known.text(mean)} {unit} {self._spread()}".split()) + few
        return f"undecided: {said}" if self.direction == "undecided" else said

    def _spread(self) -> str:
        """``[1.9, 4.3]``: of the size of the difference, below 0 on the other side; nothing without an interval."""
        ends = self.interval
        if ends is None or self.paired is None:
            return ""
        known, mean = FIGURES[self.figure], self.paired.mean
        low, high = ends if mean >= 0 else (-ends[1], -ends[0])
        return f"[{known.text(low)}, {known.text(high)}]"

    def as_row(self) -> dict[str, Any]:
        """JSON, with shares in [0, 1]."""
        one = self.paired
        return {
            **self.swept,
            "figure": self.figure,
            "a": self.a.mean,
            "b": self.b.mean,
            "difference": one.mean if one else None,
            "low": self.interval[0] if self.interval else None,
            "high": self.interval[1] if self.interval else None,
            "seeds": list(self.seeds),
            "p_value": one.p_value if one else None,
            "p_adjusted": self.p_adjusted,
            "direction": self.direction,
            "words": self.words(),
        }


@dataclass(frozen=True, kw_only=True)
class OverallDifference:
    """One metric over all cells, b against a: a change that many cells share, even if no single cell shows it.

    Attributes:
        paired: the test of the differences b - a, one for each seed: their mean over all cells.
        p_value: adjusted for the number of metrics; None for a single seed.
        half_width: half width of the interval of the mean, which excludes 0 exactly if p is below `LEVEL`.
        cells: number of cells, shared ones counted once; seeds: the seeds that all of them have.
        decided: number of cells that differ by themselves.
    """

    figure: str
    paired: PairedDifference
    p_value: float | None
    half_width: float | None
    cells: int
    seeds: tuple[int, ...]
    decided: int

    @property
    def direction(self) -> Direction:
        if self.paired.mean == 0 and not self.paired.half_width:
            return "identical"
        return self.side if self.p_value is not None and self.p_value < LEVEL else "undecided"

    @property
    def side(self) -> Literal["better", "worse"]:
        """On which side the mean is, whether or not chance may have put it there."""
        return "better" if (self.paired.mean > 0) == FIGURES[self.figure].more_is_better else "worse"

    def words(self) -> str:
        """``final accuracy over all 42 cells: b is worse by 3.1 points [1.9, 4.3], p = .0001; 1 by itself``."""
        known = FIGURES[self.figure]
        over = f"{known.title} over all {self.cells} cells" if self.cells > 1 else f"{known.title} in the one cell"
        if self.direction == "identical":
            return f"{over}: the same on average"
        mean, half = abs(self.paired.mean), self.half_width
        ends = f" [{known.text(mean - half)}, {known.text(mean + half)}]" if half and len(self.seeds) >= ENOUGH else ""
        p = "one seed, no test" if self.p_value is None else p_text(self.p_value)
        undecided = "undecided: " if self.direction == "undecided" else ""
        said = f"{over}: {undecided}b is {self.side} by {known.difference(mean)}{ends}, {p}"
        alone = (
            f"{self.decided} by {'itself' if self.decided == 1 else 'themselves'}" if self.decided else "none by itself"
        )
        return f"{said}; {alone}" if self.cells > 1 else said

    def as_row(self) -> dict[str, Any]:
        """JSON, with shares in [0, 1]."""
        mean, half = self.paired.mean, self.half_width if len(self.seeds) >= ENOUGH else None
        return {
            "figure": self.figure,
            "difference": mean,
            "low": None if half is None else mean - half,
            "high": None if half is None else mean + half,
            "p_value": self.p_value,
            "cells": self.cells,
            "seeds": list(self.seeds),
            "decided": self.decided,
            "direction": self.direction,
            "words": self.words(),
        }


@dataclass(frozen=True)
class IncomparablePosition:
    """A position that cannot be compared, and why."""

    swept: Mapping[str, str]
    figure: str
    why: str


@dataclass(frozen=True)
class ConfigDifference:
    """A key of the configuration that differs between cells at the same position.

    Attributes:
        key: dotted, as in a suite.
        a, b: its values; if there are several, at the first position.
        positions: number of common positions with this difference.
    """

    key: str
    a: str
    b: str
    positions: int


@dataclass(frozen=True)
class Comparison(Printed):
    """Two runs, b against a.

    Attributes:
        a, b: names of the runs.
        broad: one for each metric with comparable pairs: all cells together, which a reader needs first.
        differences: the positions that could be compared, metric by metric, the largest change first.
        apart: the positions that could not be compared.
        settings: differences between the configurations of common positions.
        warnings: differences of data, code or versions.
        environment: digests of code and data, and versions, in both; equal ones too.
    """

    a: str
    b: str
    figures: tuple[str, ...]
    differences: tuple[Difference, ...]
    apart: tuple[IncomparablePosition, ...]
    settings: tuple[ConfigDifference, ...] = field(repr=False)
    warnings: tuple[str, ...] = field(repr=False)
    broad: tuple[OverallDifference, ...] = ()
    environment: tuple[ConfigDifference, ...] = field(default=(), repr=False)

    def rows(self) -> list[dict[str, Any]]:
        """One row for each position and metric that could be compared."""
        return [one.as_row() for one in self.differences]

    def as_dict(self) -> dict[str, Any]:
        """JSON."""
        return {
            "a": self.a,
            "b": self.b,
            "figures": list(self.figures),
            "broad": [one.as_row() for one in self.broad],
            "differences": self.rows(),
            "apart": [{**one.swept, "figure": one.figure, "why": one.why} for one in self.apart],
            "settings": [vars(one) for one in self.settings],
            "warnings": list(self.warnings),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # By name, since pages read results, and not the other way around
        yield import_module("fedguard.bench.pages.compare").in_terminal(self)
