"""Breakdown curves: a metric over a swept key, such as the number of malicious clients or the heterogeneity of the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.bench.results.matrix import MatrixEntry
from fedguard.bench.results.places import setting
from fedguard.bench.terminal.plot import axis_of, is_logarithmic
from fedguard.errors import UnknownName
from fedguard.metrics.figures import FIGURES, metric_name
from fedguard.metrics.stats import Estimate, bracket, estimate

#: Metrics with a breakdown point: accuracies, which a guess has too.
ACCURACIES = ("final_accuracy", "best_accuracy", "normalized_return")

WORST = "worst of these"

#: The key along which an attack fades to none.
MALICIOUS = "clients.malicious"

#: The rows of one point over seeds, each with the clean accuracy of its defense and chance, where these are known.
Point = list[tuple[Mapping[str, Any], tuple[float, float] | None]]


@dataclass(frozen=True)
class SeedCurve:
    """The values of one seed along the key, with their references."""

    values: tuple[float, ...]
    clean: float
    chance: float


@dataclass(frozen=True)
class BreakdownCurve:
    """One metric along the swept key.

    Attributes:
        attack, defense: of the cells on the curve; the attack may be `WORST`, the lowest of all at each point.
        setting: the values of the other swept keys, as text.
        entries: one per value of the key: an estimate over seeds, or why there is none.
        half: the breakdown point, at which half of the clean model's advantage over chance is lost: the first such point of the
            mean curve, interpolated between two points; the first label past it if the key is no number; None if never.
        half_width: half width of the 95 % interval of `half` over seeds; None if not every seed loses half, or on a
            logarithmic axis.
        area: the mean of (metric - chance) / (clean - chance) along the axis, by the trapezoidal rule; 1 is no loss at all.
            None for a curve with a gap, or of one point.
        threshold: the value at which half is lost, in the metric's unit of `Run.rows`; None if unknown.
        until: the label of the last point that `half` and `area` take into account.
    """

    attack: str
    defense: str
    setting: str
    entries: tuple[MatrixEntry, ...]
    half: float | str | None = None
    half_width: float | None = None
    area: Estimate | None = None
    until: str = ""
    threshold: float | None = None


@dataclass(frozen=True)
class Breakdown:
    """The breakdown curves of a run.

    Attributes:
        name: of the run.
        key: the swept key.
        figure: a key of `fedguard.bench.results.matrix.FIGURES`.
        labels: the key's values, in the order of the suite.
        positions: the same as numbers; None where one is no number.
        curves: one for each attack, defense and combination of the other swept keys.
        worst: for each defense, the attack that hurts most at each point.

    The clean model of a curve has the same defense. It is trained without malicious clients if the key is their number and
    starts from 0, else without attack at the first value of the key.
    """

    name: str
    key: str
    figure: str
    labels: tuple[str, ...]
    positions: tuple[float, ...] | None
    curves: tuple[BreakdownCurve, ...]
    worst: tuple[BreakdownCurve, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row per curve and point, the worst of all attacks among them, with shares in [0, 1].

        Keys: attack, defense, setting, key, value, position (None where values are no numbers), mean, low and high (the ends of
        its 95 % interval), censored (of how many seeds a lower bound alone is known), status.
        """
        return [
            {
                "attack": curve.attack,
                "defense": curve.defense,
                "setting": curve.setting,
                "key": self.key,
                "value": label,
                "position": None if self.positions is None else self.positions[number],
                "mean": entry.estimate.mean if entry.estimate else None,
                "low": entry.estimate.low if entry.estimate else None,
                "high": entry.estimate.high if entry.estimate else None,
                "censored": entry.estimate.censored if entry.estimate else 0,
                "status": entry.status,
            }
            for curve in (*self.curves, *self.worst)
            for number, (label, entry) in enumerate(zip(self.labels, curve.entries, strict=True))
        ]

    def summary(self) -> list[dict[str, Any]]:
        """One row per curve: where half is lost, and the area under it."""
        return [
            {
                "attack": curve.attack,
                "defense": curve.defense,
                "setting": curve.setting,
                "half": curve.half,
                "half_interval": curve.half_width,
                "area": curve.area.mean if curve.area else None,
                "area_interval": curve.area.half_width if curve.area else None,
                "until": curve.until,
            }
            for curve in (*self.curves, *self.worst)
        ]


def breakdown(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    references: Sequence[tuple[float, float] | None],
    swept: Sequence[str],
    key: str = "clients.malicious",
    figure: str = "final_accuracy",
) -> Breakdown:
    """The breakdown curves of a run.

    Args:
        name: of the run, for the title.
        rows: as `Run.rows` gives them.
        references: for each row, the clean accuracy of its defense and chance; None if unknown.
        swept: the keys swept beside attack and defense.
        key: one of them.
        figure: a key of `fedguard.bench.results.matrix.FIGURES`.

    Without malicious clients there is no attack: at that point every attack's curve takes the value of the attack ``none``.

    Raises:
        UnknownName: the key is not swept, or there is no such metric.
    """
    if key not in swept:
        raise UnknownName("swept key", key, swept, f"{name}: --over")
    figure = metric_name(figure)
    others = [other for other in swept if other != key]
    labels, positions = _axis(key, dict.fromkeys(str(row[key]) for row in rows))
    found: dict[tuple[str, str, str], dict[str, Point]] = {}
    for row, reference in zip(rows, references, strict=True):
        curve = found.setdefault((setting(row, others), row["attack"], row["defense"]), {label: [] for label in labels})
        curve[str(row[key])].append((row, reference))
    nobody = labels[0] if positions and key == MALICIOUS and positions[0] == 0 else None
    for (where, attack, defense), points in found.items():
        if nobody is not None and attack != "none" and (where, "none", defense) in found:
            points[nobody] = found[where, "none", defense][nobody]
    laid_out = _BreakdownAxis(key, figure, labels, positions)
    curves = [laid_out.curve(*place, [points[label] for label in labels]) for place, points in found.items()]
    return Breakdown(name, key, figure, labels, positions, tuple(curves), tuple(laid_out.worst(found, curves)))


@dataclass(frozen=True)
class _BreakdownAxis:
    """The axis along which curves are made."""

    key: str
    figure: str
    labels: tuple[str, ...]
    positions: tuple[float, ...] | None

    def curve(
        self,
        setting: str,
        attack: str,
        defense: str,
        points: Sequence[Point],
    ) -> BreakdownCurve:
        entries = tuple(self._entry([row for row, _ in point]) for point in points)
        measured = next((n for n, entry in enumerate(entries) if entry.estimate is None), len(entries))
        gap = any(entry.estimate for entry in entries[measured:])
        until = self.labels[measured - 1] if measured else ""
        traces = [] if self.figure not in ACCURACIES else self._traces(points[:measured])
        if not traces:
            return BreakdownCurve(attack, defense, setting, entries, until=until)
        mean = SeedCurve(
            tuple(_mean(values) for values in zip(*(trace.values for trace in traces), strict=True)),
            _mean([trace.clean for trace in traces]),
            _mean([trace.chance for trace in traces]),
        )
        halves = [self._half(trace) for trace in traces]
        numbers = [half for half in halves if isinstance(half, float)]
        linear = self.positions is not None and not is_logarithmic(self.positions)
        spread = estimate(numbers).half_width if linear and numbers and len(numbers) == len(halves) else None
        areas = [] if gap or measured < 2 else [one for trace in traces if (one := self._area(trace)) is not None]
        area, threshold = estimate(areas) if areas else None, _threshold(mean)
        return BreakdownCurve(attack, defense, setting, entries, self._half(mean), spread, area, until, threshold)

    def worst(
        self, found: Mapping[tuple[str, str, str], Mapping[str, Point]], curves: Sequence[BreakdownCurve]
    ) -> Iterator[BreakdownCurve]:
        """For each setting and defense, at each point the cells of the attack with the worst mean."""
        for where, defense in dict.fromkeys((curve.setting, curve.defense) for curve in curves):
            attacked = [c for c in curves if (c.setting, c.defense) == (where, defense) and c.attack != "none"]
            if attacked:
                chosen = [self._worst_at(number, attacked) for number in range(len(self.labels))]
                points = [found[where, one.attack, defense][at] for one, at in zip(chosen, self.labels, strict=True)]
                yield self.curve(where, WORST, defense, points)

    def _worst_at(self, number: int, curves: Sequence[BreakdownCurve]) -> BreakdownCurve:
        """The worst entry of several attacks: one that failed or was not run might be the worst; refused ones do not count."""
        unknown = [curve for curve in curves if curve.entries[number].status in ("failed", "missing")]
        measured = [(found, curve) for curve in curves if (found := curve.entries[number].estimate)]
        sign = 1 if FIGURES[self.figure].more_is_better else -1
        measured.sort(key=lambda one: (-one[0].censored, sign * one[0].mean))
        return (unknown or [curve for _, curve in measured] or list(curves))[0]

    def _entry(self, rows: Sequence[Mapping[str, Any]]) -> MatrixEntry:
        bad = [row["status"] for row in rows if row["status"] != "ok"]
        values = [row[self.figure] for row in rows if row[self.figure] is not None]
        if bad or not values:
            return MatrixEntry(None, bad[0] if bad else "missing" if not rows else "ok")
        return MatrixEntry(FIGURES[self.figure].estimate(values), "ok", FIGURES[self.figure])

    def _traces(self, points: Sequence[Point]) -> list[SeedCurve]:
        """One trace per seed that has all the points."""
        by_seed: dict[int, list[tuple[float, tuple[float, float] | None]]] = {}
        for point in points:
            for row, reference in point:
                by_seed.setdefault(row["seed"], []).append((row[self.figure], reference))
        traces = []
        for seen in by_seed.values():
            references = [reference for _, reference in seen if reference is not None]
            if len(seen) < len(points) or not references:
                continue
            starts_clean = self.key == MALICIOUS and self.positions is not None and self.positions[0] == 0
            clean = seen[0][0] if starts_clean else references[0][0]
            traces.append(SeedCurve(tuple(value for value, _ in seen), clean, references[0][1]))
        return traces

    def _half(self, trace: SeedCurve) -> float | str | None:
        threshold = _threshold(trace)
        for number, value in enumerate(trace.values):
            if value > threshold:
                continue
            if self.positions is None:
                return self.labels[number]
            if number == 0:
                return self.positions[0]
            before, (left, right) = trace.values[number - 1], self.positions[number - 1 : number + 1]
            share = (before - threshold) / (before - value)
            if is_logarithmic(self.positions):
                return float(left * (right / left) ** share)
            return left + share * (right - left)
        return None

    def _area(self, trace: SeedCurve) -> float | None:
        above = trace.clean - trace.chance
        if above <= 0:
            return None
        axis = axis_of(self.positions, len(self.labels))
        kept = [(value - trace.chance) / above for value in trace.values]
        steps = [axis[i + 1] - axis[i] for i in range(len(kept) - 1)]
        whole = math.fsum(step * (kept[i] + kept[i + 1]) / 2 for i, step in enumerate(steps))
        return whole / math.fsum(steps)


def _threshold(trace: SeedCurve) -> float:
    """The value with half of the clean model's advantage over chance."""
    return trace.chance + (trace.clean - trace.chance) / 2


def _axis(key: str, labels: Iterable[str]) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    """The values in the suite's order, and as numbers if all are; malicious clients, and numbers out of order, ascend."""
    ordered = tuple(labels)
    try:
        numbers = [float(label) for label in ordered]
    except ValueError:
        return ordered, None
    if key == MALICIOUS or sorted(numbers) not in (numbers, numbers[::-1]):
        ordered = tuple(sorted(ordered, key=float))
    return ordered, tuple(float(label) for label in ordered)


def describe_half(curve: BreakdownCurve) -> str:
    """Where half is lost, with its interval; ``never``, or ``-`` for a curve without values."""
    if curve.half is None:
        return "never" if curve.until else "-"
    if isinstance(curve.half, str):
        return curve.half
    return f"{curve.half:.3g}" + (
        "" if curve.half_width is None else f" {bracket(curve.half, curve.half_width, '.3g')}"
    )


def describe_area(curve: BreakdownCurve, last: str) -> str:
    """The mean share that is kept, with its interval, and up to where, if that is not ``last``, the last value of the key."""
    if curve.area is None:
        return "-"
    spread = "" if curve.area.half_width is None else f" {bracket(curve.area.mean, curve.area.half_width, '.2f')}"
    return f"{curve.area.mean:.2f}{spread}" + ("" if curve.until == last else f" to {curve.until}")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
