"""Trials and cells in the form of experiment trackers: parameters, tags, metrics and curves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, get_args

from fedguard.bench.records.record import curve
from fedguard.bench.records.schema import Record
from fedguard.bench.records.schema.result import Measured
from fedguard.bench.records.taxonomy import taxonomy
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES


@dataclass(frozen=True, kw_only=True)
class TrackerEntry:
    """One trial, or one cell with the summary of its trials.

    Attributes:
        cell: its id.
        label: the cell in words.
        seed: the seed of a trial; None for a cell.
        parameters: the swept values, the seed, and the whole configuration, keys joined by dots.
        tags: the threat in words, the six words of the taxonomy, status and reason, flags.
        figures: its metrics, shares in [0, 1]. For a cell, the means over seeds, and with enough seeds ``FIGURE/low`` and
            ``FIGURE/high``, the ends of the 95 % interval.
        curves: ``curve/accuracy`` and others of a trial, over its rounds, from 1.
        started: start time in seconds since 1970.
        seconds: duration.
    """

    cell: str
    label: str
    seed: int | None
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    figures: Mapping[str, float]
    curves: Mapping[str, Sequence[tuple[int, float]]]
    started: float
    seconds: float

    @property
    def key(self) -> str:
        """Key of the entry, equal in every export of the run."""
        return self.cell if self.seed is None else f"{self.cell}-{self.seed}"

    @property
    def name(self) -> str:
        return self.label if self.seed is None else f"{self.label}, seed {self.seed}"

    @property
    def ok(self) -> bool:
        return self.tags["status"] == "ok"

    @property
    def digest(self) -> str:
        """SHA-256 of the whole entry: a tracker that has this digest need not write it again."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


class ExportCount(NamedTuple):
    """Number of trials and cells that were written, and that were there already."""

    new: int
    same: int


#: Writes the entries of a run, by its name, to a target.
Tracker = Callable[[str, Sequence[TrackerEntry], str], ExportCount]


def collect_trials(run: Run) -> list[TrackerEntry]:
    """The cells of a run's matrix that have records, each followed by its trials, in order; a trial stands once."""
    found: list[TrackerEntry] = []
    for cell, swept in _cells(run).items():
        records = {seed: run.records[cell, seed] for seed in run.seeds if (cell, seed) in run.records}
        if records:
            trials = [_trial(run, record, swept) for record in records.values()]
            found += [_together(run, list(records.values()), trials, swept), *trials]
    return found


def _cells(run: Run) -> dict[str, dict[str, str]]:
    """Swept values by cell; for a cell at several positions, such as one without attack, all their values."""
    values: dict[str, dict[str, dict[str, None]]] = {}
    for position in run.manifest["positions"]:
        for key, value in position["swept"].items():
            values.setdefault(position["cell"], {}).setdefault(key, {})[value] = None
    return {cell: {key: ", ".join(each) for key, each in swept.items()} for cell, swept in values.items()}


def _trial(run: Run, record: Record, swept: Mapping[str, str]) -> TrackerEntry:
    cost = record["cost"]
    figures = {name: value for name, figure in FIGURES.items() if (value := figure.of(record)) is not None}
    curves = {
        f"curve/{measure}": [(int(at), value) for at, value in curve(record, measure)] for measure in get_args(Measured)
    }
    return TrackerEntry(
        cell=record["cell"],
        label=record["label"],
        seed=record["seed"],
        parameters={**_parameters(record, swept), "seed": str(record["seed"])},
        tags={**_tags(run, [record], swept), "record": record["sha256"]},
        figures={**figures, **({"seconds": cost["seconds"]} if cost else {})},
        curves={name: points for name, points in curves.items() if points},
        started=record["environment"]["started"],
        seconds=cost["seconds"] if cost else 0.0,
    )


def _together(
    run: Run, records: Sequence[Record], trials: Sequence[TrackerEntry], swept: Mapping[str, str]
) -> TrackerEntry:
    """The entry of a cell: means over its seeds, with the intervals of the metrics."""
    figures: dict[str, float] = {}
    for name, figure in FIGURES.items():
        if values := [trial.figures[name] for trial in trials if name in trial.figures]:
            found = figure.estimate(values)
            figures[name] = found.mean
            if found.low is not None and found.high is not None:
                figures |= {f"{name}/low": found.low, f"{name}/high": found.high}
    return TrackerEntry(
        cell=records[0]["cell"],
        label=records[0]["label"],
        seed=None,
        parameters=_parameters(records[0], swept),
        tags=_tags(run, records, swept),
        figures=figures,
        curves={},
        started=min(trial.started for trial in trials),
        seconds=sum(trial.seconds for trial in trials),
    )


def _parameters(record: Record, swept: Mapping[str, str]) -> dict[str, str]:
    return {**dict(_flat("", record["config"])), **swept}


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """The leaves of a configuration, by their keys joined with dots."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}" if key else name, inner)
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            yield from _flat(f"{key}.{number}", inner)
    else:
        yield key, value if isinstance(value, str) else json.dumps(value)


def _tags(run: Run, records: Sequence[Record], swept: Mapping[str, str]) -> dict[str, str]:
    """The tags of a trial, or of all trials of a cell without repetition."""
    statuses = {record["status"] for record in records}
    card = records[0]["threat_card"]
    told = {
        "run": run.name,
        "status": "failed" if "failed" in statuses else min(statuses),
        "reason": " ".join(dict.fromkeys(record["reason"] for record in records if record["reason"])),
        **swept,
        "goal": card["goal"] or "",
        "threat": card["in_words"],
        **{word.aspect: word.word for word in taxonomy(records[0])},
        "flags": " ".join(dict.fromkeys(flag["flag"] for record in records for flag in record["flags"])),
        "fedguard": records[0]["environment"]["fedguard"],
    }
    return {name: text for name, text in told.items() if text}
