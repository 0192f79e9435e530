"""What a run says of each control: the worst value of each metric for each defense, with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedguard.bench.controls.table import Control, ControlTable, EvidenceSource
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import Estimate


@dataclass(frozen=True)
class MetricEvidence:
    """The worst value of a metric for one defense.

    Attributes:
        metric: its name.
        defense: the defense, with the values of other swept keys.
        attack: under which it is the worst; "none" without attack.
        value: mean over seeds with its 95 % interval.
    """

    metric: str
    defense: str
    attack: str
    value: Estimate

    def describe(self) -> str:
        """``final accuracy 41.2 [38.0, 44.5] %: median under ipm(tau=5)``."""
        known = FIGURES[self.metric]
        unit = f" {known.unit}" if known.unit else ""
        against = "without attack" if self.attack == "none" else f"under {self.attack}"
        return f"{known.title} {known.format_estimate(self.value)}{unit}: {self.defense} {against}, {self.value.seeds} seeds"


@dataclass(frozen=True)
class ControlEvidence:
    """A control with what a run says of it; without evidence it was not tested."""

    control: Control
    found: tuple[MetricEvidence, ...]

    def as_dict(self) -> dict[str, Any]:
        """Its fields as JSON types."""
        return {
            "text": self.control.text,
            "id": self.control.id,
            "asks": self.control.asks,
            "tested": bool(self.found),
            "evidence": [
                {
                    "metric": one.metric,
                    "defense": one.defense,
                    "attack": one.attack,
                    "mean": one.value.mean,
                    "low": one.value.low,
                    "high": one.value.high,
                    "seeds": one.value.seeds,
                }
                for one in self.found
            ],
            "not_shown": self.control.not_shown,
        }


def collect_evidence(run: Run, table: ControlTable) -> list[ControlEvidence]:
    """Each control of the table, in its order, with what the run says of it."""
    return [
        ControlEvidence(one, tuple(found for source in one.evidence for found in _of_source(run, source)))
        for one in table.controls
    ]


def _of_source(run: Run, source: EvidenceSource) -> Iterator[MetricEvidence]:
    """The worst value of the metric for each defense that has one, in the order of the run."""
    known = FIGURES[source.metric]
    by_defense: dict[str, dict[str, list[float]]] = {}
    for row in run.rows():
        if row["status"] == "ok" and row[source.metric] is not None and _fits(row, source):
            attacks = by_defense.setdefault(_describe_setting(run, row), {})
            attacks.setdefault(row["attack"], []).append(row[source.metric])
    for defense, attacks in by_defense.items():
        values = {attack: known.estimate(numbers) for attack, numbers in attacks.items()}
        worst = (min if known.more_is_better else max)(values, key=lambda attack: values[attack].mean)
        yield MetricEvidence(source.metric, defense, worst, values[worst])


def _fits(row: Mapping[str, Any], source: EvidenceSource) -> bool:
    return source.rows == "all" or (row["attack"] == "none") == (source.rows == "clean")


def _describe_setting(run: Run, row: Mapping[str, Any]) -> str:
    """The defense, and the values of what else is swept."""
    others = [f"{key} = {row[key]}" for key in run.swept if key in row]
    return f"{row['defense']} ({', '.join(others)})" if others else str(row["defense"])
