"""Compares two runs, seed by seed: differences, their size, and their uncertainty."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedguard.arguments import of_kind, words
from fedguard.bench.results.comparison import (
    LEVEL,
    Comparison,
    ConfigDifference,
    Difference,
    IncomparablePosition,
    OverallDifference,
)
from fedguard.bench.results.differences import apart
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, metric_name
from fedguard.metrics.stats import compare_pairs, has_lower_bound, holm, holm_levels, student

Place = tuple[tuple[str, str], ...]
Row = Mapping[str, Any]


def compare(a: Run, b: Run, figure: str | Sequence[str] = "final_accuracy") -> Comparison:
    """Compare b with a, position by position and seed by seed.

    Positions are matched by their swept values, since configurations may differ on purpose. Student's test is applied to the
    differences b - a over common seeds: first per metric, on the seeds' means over all cells, for changes that many cells
    share; then per position. Both are adjusted by Holm, and the intervals with them, so that an interval excludes 0 exactly if
    its difference is decided. A position with a refused, failed or missing seed is not compared, as in a matrix.

    Args:
        a, b: the runs.
        figure: one key of `FIGURES` or several.

    Raises:
        UnknownName: there is no such metric.
    """
    for name, run in (("a", a), ("b", b)):
        of_kind(run, name, Run, "a Run, as fedguard.open_run gives")
    figures = (figure,) if isinstance(figure, str) else tuple(dict.fromkeys(words(figure, "figure")))
    figures = tuple(dict.fromkeys(map(metric_name, figures)))
    common = set(a.seeds) & set(b.seeds)
    sides = (_positions(a, common, figures), _positions(b, common, figures))
    judged = [
        one
        for name in figures
        for place in dict.fromkeys((*sides[0], *sides[1]))
        if (one := _at(dict(place), name, [side.get(place, []) for side in sides], (a, b), common)) is not None
    ]
    found = _adjust_p_values([one for one in judged if isinstance(one, Difference)])
    found.sort(key=lambda one: (figures.index(one.figure), -one.size))
    only_one = tuple(one for one in judged if isinstance(one, IncomparablePosition))
    made = tuple(_settings(a, b)), tuple(_warnings(a, b)), tuple(_broad(found)), tuple(_environments(a, b))
    return Comparison(a.name, b.name, figures, tuple(found), only_one, *made)


def _positions(run: Run, common: set[int], figures: Sequence[str] = ()) -> dict[Place, list[Row]]:
    """The rows of each position, of the common seeds where there are any."""
    found: dict[Place, list[Row]] = {}
    for row in run.rows(*figures):
        if not common or row["seed"] in common:
            found.setdefault(_place(row, run), []).append(row)
    return found


def _place(values: Mapping[str, Any], run: Run) -> Place:
    return tuple((key, str(values[key])) for key in ("attack", "defense", *sorted(run.swept)))


def _at(
    swept: Mapping[str, str], figure: str, sides: Sequence[Sequence[Row]], runs: Sequence[Run], common: set[int]
) -> Difference | IncomparablePosition | None:
    """The difference of a metric at one position; None if the metric does not apply to its attack, or is on neither side."""
    if not any(FIGURES[figure].fits(row["goal"]) for side in sides for row in side):
        return None
    why = [_lacking(*side, swept) for side in zip("ab", sides, runs, strict=True)]
    absent = [said for said, side in zip(why, sides, strict=True) if not side]
    if any(why):
        return IncomparablePosition(swept, figure, next(said for said in (*absent, *why) if said))
    before, after = ({row["seed"]: row[figure] for row in side if row[figure] is not None} for side in sides)
    if not before and not after:
        return None
    seeds = tuple(sorted(set(before) & set(after))) if common else ()
    if not before or not after or (common and not seeds):
        lacks = "a" if not before else "b" if not after else "every common seed of a or b"
        return IncomparablePosition(swept, figure, f"{lacks} has no such metric here")
    late = [side for side, values in zip("ab", (before, after), strict=True) if has_lower_bound(values.values())]
    if late:
        return IncomparablePosition(swept, figure, f"{' and '.join(late)} did not get there on every seed")
    return Difference(
        swept=swept,
        figure=figure,
        a=FIGURES[figure].estimate([before[seed] for seed in seeds or before]),
        b=FIGURES[figure].estimate([after[seed] for seed in seeds or after]),
        paired=compare_pairs([after[seed] - before[seed] for seed in seeds]) if seeds else None,
        differences=tuple(after[seed] - before[seed] for seed in seeds),
        seeds=seeds,
        cells=(sides[0][0]["cell"], sides[1][0]["cell"]),
    )


def _lacking(name: str, rows: Sequence[Row], run: Run, swept: Mapping[str, str]) -> str:
    """Why a run has no values at a position; empty if it has."""
    if not rows:
        unswept = sorted(set(swept) - {"attack", "defense", *run.swept})
        return f"{name} does not sweep {', '.join(unswept)}" if unswept else f"not in {name}"
    bad = next((row for row in rows if row["status"] != "ok"), None)
    return f"{bad['status']} in {name}: {bad['reason']}" if bad else ""


def _adjust_p_values(found: Sequence[Difference]) -> list[Difference]:
    """The differences with p-values adjusted by Holm, and intervals that exclude 0 exactly if these are below `LEVEL`."""
    tested = {number: one.paired.p_value for number, one in enumerate(found) if one.paired}
    p_values = {number: value for number, value in tested.items() if value is not None}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    levels = dict(zip(p_values, holm_levels(list(p_values.values()), LEVEL), strict=True))
    return [
        replace(one, p_adjusted=adjusted[n], half_width=student(one.differences, 1 - levels[n]).half_width)
        if n in adjusted
        else one
        for n, one in enumerate(found)
    ]


def _broad(found: Sequence[Difference]) -> Iterator[OverallDifference]:
    """For each metric a t-test on the seeds' means over all cells, adjusted by Holm for the number of metrics."""
    means: dict[str, tuple[list[Difference], tuple[int, ...], list[float]]] = {}
    for figure in dict.fromkeys(one.figure for one in found):
        # positions of one cell in both runs, such as those without attack over a sweep of attackers, are one
        of_it = [one for one in found if one.figure == figure and one.paired]
        cells = list({one.cells if any(one.cells) else tuple(one.swept.items()): one for one in of_it}.values())
        seeds = tuple(sorted(set.intersection(*(set(one.seeds) for one in cells)))) if cells else ()
        if seeds:
            by_seed = [dict(zip(one.seeds, one.differences, strict=True)) for one in cells]
            means[figure] = cells, seeds, [math.fsum(one[seed] for one in by_seed) / len(cells) for seed in seeds]
    tests = {figure: compare_pairs(values) for figure, (_, _, values) in means.items()}
    p_values = {figure: one.p_value for figure, one in tests.items() if one.p_value is not None}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    levels = dict(zip(p_values, holm_levels(list(p_values.values()), LEVEL), strict=True))
    for figure, (cells, seeds, values) in means.items():
        yield OverallDifference(
            figure=figure,
            paired=tests[figure],
            p_value=adjusted.get(figure),
            half_width=student(values, 1 - levels[figure]).half_width if figure in levels else None,
            cells=len(cells),
            seeds=seeds,
            decided=sum(one.direction in ("better", "worse") for one in cells),
        )


def _settings(a: Run, b: Run) -> Iterator[ConfigDifference]:
    """Keys that differ between the cells of common positions, and the seeds."""
    if set(a.seeds) != set(b.seeds):
        yield ConfigDifference("seeds", str(a.seeds), str(b.seeds), 0)
    configs = [
        {_place(position["swept"], run): _config(run, position["cell"]) for position in run.manifest["positions"]}
        for run in (a, b)
    ]
    found: dict[str, list[tuple[str, str]]] = {}
    shared = [(one, two) for place, one in configs[0].items() if one and (two := configs[1].get(place))]
    for one, two in shared:
        for key, was, now in apart(one, two):
            found.setdefault(key, []).append((was, now))
    for key, values in found.items():
        yield ConfigDifference(key, *values[0], 0 if len(values) == len(shared) else len(values))


def _config(run: Run, cell: str) -> Mapping[str, Any] | None:
    """The configuration of a cell; None where it has no record."""
    record = next((run.records[cell, seed] for seed in run.seeds if (cell, seed) in run.records), None)
    return record["config"] if record else None


#: Keys of a record's environment that may change its results, and whether their values are meaningful to a reader.
_MAKERS = {
    "data": ("the data differ: pairs of seeds did not see the same examples", False),
    "code": ("the code differs", False),
    "torch": ("torch differs", True),
    "device": ("the device differs", True),
}


def _warnings(a: Run, b: Run) -> Iterator[str]:
    if a.manifest["results_version"] != b.manifest["results_version"]:
        yield "the version of results differs: numbers of two versions are not comparable"
    for key, (said, telling) in _MAKERS.items():
        one, two = (_environment_values(run, key) for run in (a, b))
        if one and two and one != two:
            yield f"{said} ({', '.join(sorted(one))} in a, {', '.join(sorted(two))} in b)" if telling else said


def _environments(a: Run, b: Run) -> Iterator[ConfigDifference]:
    """What made the records of both, digests in short; nothing of what is unknown."""
    was, now = (str(run.manifest["results_version"]) for run in (a, b))
    yield ConfigDifference("results version", was, now, 0)
    for key in _MAKERS:
        one, two = (", ".join(sorted(map(_shorten, _environment_values(run, key)))) for run in (a, b))
        if one or two:
            yield ConfigDifference(key, one, two, 0)


def _shorten(value: str) -> str:
    """Eight characters of each digest."""
    return re.sub(r'"?\b([0-9a-f]{8})[0-9a-f]{8,}\b"?', r"\1", value).strip("{}").replace('"', "")


def _environment_values(run: Run, key: str) -> set[str]:
    """The values of a key of the environment, as text."""
    found = [record["environment"].get(key) for record in run.records.values() if record["status"] == "ok"]
    return {value if isinstance(value, str) else json.dumps(value, sort_keys=True) for value in found}
