"""Time profile: the duration of each stage of the rounds, for each cell and for a whole run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from fedguard.bench.records.schema import CompletedRecord
from fedguard.bench.results.places import label, setting
from fedguard.bench.terminal.printed import Printed

WHOLE = "the whole run"

#: A stage with a smaller share of the time is not named in a line of words.
_NAMED = 0.05

#: A stage with a smaller share, 0.0 %, has no line in a table.
SHOWN = 0.0005

#: Cells in a table on a terminal; JSON and the dashboard have all.
_LISTED = 20

#: Characters of a line that has room for what a stage is.
_WIDE = 130


@dataclass(frozen=True)
class StageProfile:
    """The time of one stage in several trials together; ``seconds`` are wall time."""

    name: str
    seconds: float
    cpu_seconds: float
    calls: int


@dataclass(frozen=True)
class ProfileEntry:
    """The time profile of some trials.

    Attributes:
        place: a cell in words, or `WHOLE`.
        swept: the cell's attack, its defense and each other swept key; empty for a control outside the matrix, and for
            several cells.
        cell: its hash, "" for several cells.
        trials: number of trials.
        rounds: number of rounds of all trials together.
        stages: by decreasing time; stages that never ran are left out.
    """

    place: str
    swept: Mapping[str, str]
    cell: str
    trials: int
    rounds: int
    stages: tuple[StageProfile, ...]

    @property
    def setting(self) -> str:
        """The values of the swept keys beside attack and defense, the end of `place`; "" where there are none."""
        return setting(self.swept, [key for key in self.swept if key not in ("attack", "defense")])

    @property
    def seconds(self) -> float:
        """Of all trials together."""
        return math.fsum(stage.seconds for stage in self.stages)

    @property
    def cpu_seconds(self) -> float:
        """Of all trials together."""
        return math.fsum(stage.cpu_seconds for stage in self.stages)

    @property
    def ms_per_round(self) -> float:
        """Milliseconds per round; one-time work of a trial, such as partitioning the data, is spread over its rounds."""
        return 1000 * self.seconds / self.rounds

    def words(self) -> str:
        """``6 trials, 12.3 s, of which a processor worked 11.9 s; 72 % training, 20 % evaluation, 8 % the rest``."""
        named = [stage for stage in self.stages if stage.seconds >= _NAMED * self.seconds]
        shares = {stage.name.replace("_", " "): stage.seconds for stage in named}
        if len(named) < len(self.stages):
            shares["the rest"] = self.seconds - math.fsum(shares.values())
        trials = f"{self.trials} {'trial' if self.trials == 1 else 'trials'}, {self.seconds:,.1f} s"
        return f"{trials}, of which a processor worked {self.cpu_seconds:,.1f} s; " + ", ".join(
            f"{100 * spent / self.seconds:.0f} % {name}" for name, spent in shares.items()
        )

    def rows(self, least: float = 0.0) -> list[dict[str, Any]]:
        """One row for each stage with at least this share of the seconds; shares are in [0, 1]."""
        return [
            {
                "stage": stage.name,
                "share": stage.seconds / self.seconds,
                "ms_per_round": 1000 * stage.seconds / self.rounds,
                "seconds_per_trial": stage.seconds / self.trials,
                "cpu_seconds_per_trial": stage.cpu_seconds / self.trials,
                "calls_per_trial": stage.calls / self.trials,
            }
            for stage in self.stages
            if stage.seconds >= least * self.seconds
        ]

    def as_dict(self) -> dict[str, Any]:
        """JSON."""
        return {
            "place": self.place,
            **({"cell": self.cell} if self.cell else {}),
            **self.swept,
            "trials": self.trials,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "ms_per_round": self.ms_per_round,
            "stages": self.rows(),
        }


@dataclass(frozen=True)
class Profile(Printed):
    """The time profile of a run.

    Attributes:
        name: name of the run.
        cells: by decreasing time per round, controls outside the matrix included.
        untimed: number of trials that ran before stages were timed; they are left out.
    """

    name: str
    cells: tuple[ProfileEntry, ...]
    untimed: int

    @property
    def whole(self) -> ProfileEntry | None:
        """All trials together; None where none was timed."""
        return together(self.cells) if self.cells else None

    def without(self) -> str:
        """A line on what is left out; "" if nothing is."""
        if not self.untimed:
            return "" if self.cells else "No trial of this run has a result, so none was timed."
        what = "1 trial was" if self.untimed == 1 else f"{self.untimed} trials were"
        return (
            f"{what} run by an older FedGuard, which did not time stages, and "
            f"{'is' if self.untimed == 1 else 'are'} left out. `fedguard run SUITE --fresh` runs all trials again."
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON: the whole run, and each cell."""
        return {
            "name": self.name,
            "untimed": self.untimed,
            "whole": self.whole.as_dict() if self.whole else None,
            "cells": [cell.as_dict() for cell in self.cells],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"{self.name}: where the time goes", "bold")
        if self.without():
            yield Text(self.without(), "yellow")
        if self.whole:
            yield Text(self.whole.words())
            yield _stages(self.whole, options.max_width)
            slowest = self.cells[:_LISTED]
            few = (
                f"the {_LISTED} slowest of {len(self.cells)}" if len(slowest) < len(self.cells) else "the slowest first"
            )
            yield Text(f"Milliseconds per round of each cell, {few}", "bold")
            yield _cells(slowest, [row["stage"] for row in self.whole.rows(SHOWN)], options.max_width)


def profile(
    name: str, records: Mapping[tuple[str, int], CompletedRecord], positions: Sequence[Mapping[str, Any]]
) -> Profile:
    """The time profile of a run.

    Args:
        name: name of the run.
        records: by cell and seed, as in `Run.ran`.
        positions: positions of the matrix, as in the manifest. A cell at several positions is counted once, and its place
            states what they have in common.
    """
    cells: dict[str, list[CompletedRecord]] = {}
    untimed = 0
    for (cell, _), record in records.items():
        if record["cost"].get("stages"):
            cells.setdefault(cell, []).append(record)
        else:
            untimed += 1
    places: dict[str, list[Mapping[str, str]]] = {}
    for position in positions:
        places.setdefault(position["cell"], []).append(position["swept"])
    found = [_of_cell(cell, its, places.get(cell, [])) for cell, its in cells.items()]
    return Profile(name, tuple(sorted(found, key=lambda part: -part.ms_per_round)), untimed)


def together(parts: Sequence[ProfileEntry], place: str = WHOLE) -> ProfileEntry:
    """Several parts as one."""
    stages = _merge_stages(stage for part in parts for stage in part.stages)
    return ProfileEntry(place, {}, "", sum(part.trials for part in parts), sum(part.rounds for part in parts), stages)


def meanings() -> dict[str, str]:
    """What each stage is, in one line."""
    from fedguard.contracts.stopwatch import STAGES  # here, since it loads torch, which readers do not need

    return dict(STAGES)


def _of_cell(cell: str, records: Sequence[CompletedRecord], places: Sequence[Mapping[str, str]]) -> ProfileEntry:
    common = {
        key: value
        for key, value in (places[0].items() if places else ())
        if key in ("attack", "defense") or all(place[key] == value for place in places)
    }
    timed = [(name, spent) for record in records for name, spent in record["cost"]["stages"].items()]
    stages = _merge_stages(
        StageProfile(name, spent["seconds"], spent["cpu_seconds"], spent["calls"]) for name, spent in timed
    )
    rounds = sum(record["result"]["rounds"]["total"] for record in records)
    place = label(common) if common else f"{records[0]['label']}, a control"
    return ProfileEntry(place, common, cell, len(records), rounds, stages)


def _merge_stages(stages: Iterable[StageProfile]) -> tuple[StageProfile, ...]:
    """Stages of the same name as one, the one that took most first."""
    alike: dict[str, list[StageProfile]] = {}
    for stage in stages:
        alike.setdefault(stage.name, []).append(stage)
    found = [
        StageProfile(
            name,
            math.fsum(stage.seconds for stage in its),
            math.fsum(stage.cpu_seconds for stage in its),
            sum(stage.calls for stage in its),
        )
        for name, its in alike.items()
    ]
    return tuple(sorted((stage for stage in found if stage.seconds), key=lambda stage: -stage.seconds))


def _stages(part: ProfileEntry, room: int) -> Table:
    """A row for each stage and one for all; with explanations if there is room."""
    known = meanings() if room >= _WIDE else {}
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("stage", no_wrap=True)
    for heading in ("share\n%", "ms per\nround", "s per\ntrial", "CPU s\nper trial", "calls\nper trial"):
        table.add_column(heading, justify="right", no_wrap=True)
    if known:
        table.add_column("what it is")
    for row in part.rows(SHOWN):
        table.add_row(
            row["stage"].replace("_", " "),
            f"{100 * row['share']:.1f}",
            f"{row['ms_per_round']:,.2f}",
            f"{row['seconds_per_trial']:,.3f}",
            f"{row['cpu_seconds_per_trial']:,.3f}",
            f"{row['calls_per_trial']:,.1f}".removesuffix(".0"),
            *([known.get(row["stage"], "")] if known else []),
        )
    table.add_section()
    each = (f"{spent / part.trials:,.3f}" for spent in (part.seconds, part.cpu_seconds))
    table.add_row("all", "100.0", f"{part.ms_per_round:,.2f}", *each, style="bold")
    return table


def _cells(parts: Sequence[ProfileEntry], stages: Sequence[str], room: int) -> Table:
    """Cells by stages. Stages that do not fit are merged into one column."""
    places = min(max(len(part.place) for part in parts), room // 2)
    spent = [{row["stage"]: row["ms_per_round"] for row in part.rows()} for part in parts]
    columns = [["all", *(f"{part.ms_per_round:,.2f}" for part in parts)]]
    left = room - places - 3 - _width(columns[0])
    for number, stage in enumerate(stages):
        column = [stage.replace("_", " "), *(f"{ms[stage]:,.2f}" if stage in ms else "-" for ms in spent)]
        rest = ["the rest", *(f"{math.fsum(ms.get(other, 0.0) for other in stages[number:]):,.2f}" for ms in spent)]
        last = number + 1 == len(stages)
        left -= _width(column)
        if left < (0 if last else _width(rest)):
            columns.append(rest)
            break
        columns.append(column)
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("cell", max_width=places)
    for column in columns:
        table.add_column(column[0], justify="right", no_wrap=True)
    for part, *texts in zip(parts, *(column[1:] for column in columns), strict=True):
        table.add_row(Text(part.place), *texts)
    return table


def _width(column: Sequence[str]) -> int:
    return max(map(len, column)) + 3
