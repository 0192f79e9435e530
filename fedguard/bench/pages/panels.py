"""The panels of a matrix: values of one metric by attack and defense, for each combination of the other swept keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedguard.bench.pages.blocks import Field, Panel
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, Metric
from fedguard.metrics.returns import controls
from fedguard.metrics.stats import Estimate

#: The cells by attack, defense and the other swept keys: a row for each seed
Rows = Mapping[tuple[str, ...], Sequence[Mapping[str, Any]]]

#: Loss with the strongest color, as a share
_STRONGEST = 0.8

WORST = "worst"

#: The defense that losses are measured against
PLAIN = "mean"


@dataclass(frozen=True)
class CellValue:
    """One cell of the matrix.

    Attributes:
        cell: its hash.
        swept: attack, defense and the other swept keys.
        values: of the metric, by seed; empty unless every seed has run.
        status: ``ok``, or the most frequent other status.
        reasons: why seeds have no result.
    """

    cell: str
    swept: Mapping[str, str]
    values: Mapping[int, float]
    status: str
    reasons: Sequence[str]
    metric: Metric

    @cached_property
    def estimate(self) -> Estimate | None:
        """The mean over seeds; None without a value."""
        return self.metric.estimate(list(self.values.values())) if self.values else None

    @property
    def text(self) -> str:
        """The mean, or why there is none."""
        found = self.estimate
        if found is None:
            return "-" if self.status == "ok" else self.status
        return (">" if found.censored else "") + self.metric.text(found.mean)

    @property
    def quantity(self) -> str:
        """The mean with its unit and its interval or, in parentheses, its range."""
        spread = f"({self.spread})" if self.spread[:1].isdigit() else self.spread
        return " ".join(part for part in (self.text, self.metric.unit, spread) if part)

    @property
    def spread(self) -> str:
        """The interval; of two seeds their range; "" for one."""
        if self.estimate is None or len(self.values) < 2 or self.estimate.censored:
            return ""
        low, high = min(self.values.values()), max(self.values.values())
        return self.metric.interval(self.estimate) or f"{self.metric.text(low)}\N{EN DASH}{self.metric.text(high)}"


@dataclass(frozen=True)
class Loss:
    """What a defense loses to its worst attack against the reference of its panel, in the metric's unit as stored."""

    lost: float
    entry: CellValue


@dataclass(frozen=True)
class MatrixPanel:
    """All attacks and defenses under one setting.

    Attributes:
        place: the values of the other swept keys.
        entries: by attack and defense; a cell that the suite does not have is missing.
        clean: the metric without attack and with the plain mean; None if unknown.
    """

    place: Mapping[str, str]
    entries: Mapping[tuple[str, str], CellValue]
    clean: float | None
    metric: Metric

    @property
    def title(self) -> str:
        """``clients.malicious = 4``; "" if no other key is swept."""
        return setting(self.place, self.place)

    @cached_property
    def attacks(self) -> list[str]:
        """The attacks that have a value, or a reason for none; some metrics exist for some attacks only."""
        return list(dict.fromkeys(attack for (attack, _), one in self.entries.items() if one.text != "-"))

    @cached_property
    def defenses(self) -> list[str]:
        """The defenses that have a value, or a reason for none."""
        return list(dict.fromkeys(defense for (_, defense), one in self.entries.items() if one.text != "-"))

    def against(self, defense: str) -> list[CellValue]:
        """The cells of a defense with an attack."""
        return [one for (attack, other), one in self.entries.items() if other == defense and attack != "none"]

    @cached_property
    def worst(self) -> dict[str, CellValue]:
        """The attack that is worst for each defense: by the number of censored seeds, then by the mean."""
        sign = -1 if self.metric.more_is_better else 1
        found: dict[str, CellValue] = {}
        for defense in self.defenses:
            measured = [
                (one.estimate.censored, sign * one.estimate.mean, one) for one in self.against(defense) if one.estimate
            ]
            if measured:
                found[defense] = max(measured, key=lambda one: one[:2])[-1]
        return found

    def measure_loss(self, value: float, reference: float) -> float:
        """How much worse than the reference."""
        return reference - value if self.metric.more_is_better else value - reference

    @cached_property
    def best(self) -> float | None:
        """The best value; None without any."""
        means = [one.estimate.mean for one in self.entries.values() if one.estimate]
        return (max if self.metric.more_is_better else min)(means, default=None)

    @cached_property
    def losses(self) -> list[Loss]:
        """What each defense loses to its worst attack, the least first; empty without a clean value."""
        if self.clean is None:
            return []
        found = [
            Loss(self.measure_loss(one.estimate.mean, self.clean), one) for one in self.worst.values() if one.estimate
        ]
        return sorted(found, key=lambda one: one.lost)

    def draw(self, heat: Callable[[float, MatrixPanel], float], keys: Sequence[str]) -> Panel:
        """The panel, titled by the values of these keys, with a row for each attack, and the worst of several as the last."""
        rows: list[tuple[str, Sequence[Field]]] = [
            (attack, [_field(self.entries.get((attack, one)), self, heat) for one in self.defenses])
            for attack in self.attacks
        ]
        several = len([attack for attack in self.attacks if attack != "none"]) > 1
        if several:
            rows.append((WORST, [self._worst_field(one, heat) for one in self.defenses]))
        return Panel(setting(self.place, keys), self.defenses, rows, int(several))

    def _worst_field(self, defense: str, heat: Callable[[float, MatrixPanel], float]) -> Field:
        """The worst of the attacks that ran; ``*`` if another failed or is missing, which may be worse."""
        found = self.worst.get(defense)
        if found is None:
            return Field("-")
        drawn = _field(found, self, heat)
        unknown = any(one.status in ("failed", "missing") for one in self.against(defense))
        return Field(drawn.text + "*" * unknown, "", drawn.heat, drawn.query)


def _field(entry: CellValue | None, panel: MatrixPanel, heat: Callable[[float, MatrixPanel], float]) -> Field:
    if entry is None:
        return Field("")
    found = entry.estimate
    return Field(entry.text, entry.spread, None if found is None else heat(found.mean, panel), entry.swept)


def matrix_panels(run: Run, metric: str) -> list[MatrixPanel]:
    """One panel for each combination of the swept keys beside attack and defense, in the order of the suite.

    Raises:
        UnknownName: there is no such metric.
    """
    known = FIGURES[metric]
    cells: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    keys = ["attack", "defense", *run.swept]
    for row in run.rows(metric):
        if known.fits(row["goal"]):
            cells.setdefault(tuple(str(row[key]) for key in keys), []).append(row)
    places: dict[tuple[str, ...], dict[tuple[str, str], CellValue]] = {}
    for (attack, defense, *place), rows in cells.items():
        swept = dict(zip(keys, (attack, defense, *place), strict=True))
        places.setdefault(tuple(place), {})[attack, defense] = _entry(swept, rows, metric)
    return [
        MatrixPanel(dict(zip(run.swept, place, strict=True)), entries, _clean(run, metric, entries, cells), known)
        for place, entries in places.items()
    ]


def _entry(swept: Mapping[str, str], rows: Sequence[Mapping[str, Any]], metric: str) -> CellValue:
    bad = Counter(row["status"] for row in rows if row["status"] != "ok").most_common(1)
    reasons = list(dict.fromkeys(str(row["reason"]) for row in rows if row["status"] != "ok"))
    # A mean over the seeds that happened to work would be a different metric
    values = {} if bad else {row["seed"]: row[metric] for row in rows if row[metric] is not None}
    return CellValue(rows[0]["cell"], swept, values, bad[0][0] if bad else "ok", reasons, FIGURES[metric])


def _clean(run: Run, metric: str, entries: Mapping[tuple[str, str], CellValue], cells: Rows) -> float | None:
    """The metric of the cell without attack and with the plain mean, or of the controls of the panel's trials."""
    own = entries.get(("none", PLAIN))
    if own and own.estimate:
        return own.estimate.mean
    if metric != run.score:
        return None
    values = dict(_controls(run, entries, cells))
    return FIGURES[metric].estimate(list(values.values())).mean if values else None


def _controls(run: Run, entries: Mapping[tuple[str, str], CellValue], cells: Rows) -> Iterator[tuple[int, float]]:
    for one in entries.values():
        for row in cells[tuple(one.swept.values())]:
            record = run.ran.get((row["cell"], row["seed"]))
            if record and (value := controls(record["result"])["clean_mean"]) is not None:
                yield row["seed"], value


class Heat:
    """The color of a value: its loss against no attack with the plain mean, or where that is unknown against the best value."""

    def __init__(self, panels: Sequence[MatrixPanel], metric: Metric) -> None:
        self.metric = metric
        self.clean = all(panel.clean is not None for panel in panels if panel.best is not None)
        losses = [
            self._measure(one.estimate.mean, panel)
            for panel in panels
            for one in panel.entries.values()
            if one.estimate
        ]
        self.strongest = _STRONGEST if metric.unit == "%" else max([0.0, *losses]) or 1.0

    @property
    def reference(self) -> str:
        """What losses are measured against."""
        return "no attack with the plain mean" if self.clean else "the best value"

    def __call__(self, value: float, panel: MatrixPanel) -> float:
        return min(1.0, max(0.0, self._measure(value, panel) / self.strongest))

    def scale(self) -> list[tuple[float, str]]:
        """The entries of the legend."""
        return [(step / 4, self.metric.difference(step / 4 * self.strongest)) for step in range(5)]

    def _measure(self, value: float, panel: MatrixPanel) -> float:
        reference = panel.clean if self.clean else panel.best
        return 0.0 if reference is None else panel.measure_loss(value, reference)
