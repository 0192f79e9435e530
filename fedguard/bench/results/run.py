"""A run, to be read: rows, frames, tables. It reads records and nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedguard.bench.records.reading import DamagedFile
from fedguard.bench.records.schema import CompletedRecord, Manifest, Position, Record
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.breakdown import Breakdown, breakdown
from fedguard.bench.results.matrix import Matrix, matrix
from fedguard.bench.results.profile import Profile, profile
from fedguard.bench.results.trilemma import Trilemma, trilemma
from fedguard.bench.results.verdict import RunVerdict
from fedguard.errors import ConfigError, MissingExtra, UnknownName, brief, escape_control
from fedguard.metrics.figures import FIGURES, TO_TARGET, TargetMetric, metric_name
from fedguard.metrics.returns import in_shares

if TYPE_CHECKING:
    import pandas


T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A trial that failed.

    Attributes:
        cell, seed: which it is.
        place: attack, defense, and the other swept keys; for a control outside the matrix, attack and defense.
        reason: why, in one line.
    """

    cell: str
    seed: int
    place: Mapping[str, str]
    reason: str


@dataclass(frozen=True)
class Run:
    """One run folder. Its records are read once, when they are first asked for."""

    folder: RunFolder
    manifest: Manifest = field(repr=False)

    @classmethod
    def open(cls, run: str | Path, store: str | Path = "runs") -> Run:
        """Open a run by its name in the store or by its path.

        Raises:
            StoreError: there is none, or its manifest cannot be read.
        """
        folder = RunFolder.find(run, Path(store))
        return cls(folder, folder.manifest())

    @property
    def name(self) -> str:
        return escape_control(self.folder.path.name)

    @property
    def seeds(self) -> list[int]:
        return list(self.manifest["seeds"])

    @property
    def swept(self) -> list[str]:
        """The swept keys beside attack and defense."""
        return [key for key in self.manifest["swept"] if key not in ("attack", "defense")]

    @cached_property
    def _read(self) -> tuple[dict[tuple[str, int], Record], dict[Path, DamagedFile]]:
        cells = dict.fromkeys([position["cell"] for position in self.manifest["positions"]] + self.manifest["controls"])
        broken: list[DamagedFile] = []
        found = {(cell, seed): self.folder.read(cell, seed, broken.append) for cell in cells for seed in self.seeds}
        return {trial: record for trial, record in found.items() if record is not None}, {
            one.path: one for one in broken
        }

    @property
    def records(self) -> dict[tuple[str, int], Record]:
        """The records of this run's cells, controls included, by cell and seed."""
        return self._read[0]

    @cached_property
    def ran(self) -> dict[tuple[str, int], CompletedRecord]:
        """The records of trials that ran."""
        return {trial: record for trial, record in self.records.items() if record["status"] == "ok"}

    def trials(self) -> Iterator[tuple[Mapping[str, str], CompletedRecord]]:
        """Swept values and record of each trial of the matrix that ran, in its order; controls are not among them."""
        for position in self.manifest["positions"]:
            found = (self.ran.get((position["cell"], seed)) for seed in self.seeds)
            yield from ((position["swept"], record) for record in found if record is not None)

    @property
    def broken(self) -> list[DamagedFile]:
        """Records that cannot be read, and why; `fedguard run` sets them aside and runs their trials again."""
        return list(self._read[1].values())

    def rows(self, *figures: str) -> list[dict[str, Any]]:
        """One row for each position of the matrix and each seed; a trial without record has the status ``missing``.

        Keys: cell, attack, defense, each other swept key, seed, status, reason, goal (of the attack); each of
        `fedguard.metrics.figures.FIGURES`; seconds, flags (names joined by spaces). Accuracies, rates and shares are in [0, 1];
        None is what does not apply.

        Args:
            figures: further metrics, such as ``seconds_to(0.9)``.

        Raises:
            UnknownName: there is no such metric.
        """
        more = [name for name in dict.fromkeys(figures) if isinstance(FIGURES[metric_name(name)], TargetMetric)]
        return [{**row, **self._more(row, more)} for row in self._rows]

    def rows_of(self, metric: str) -> list[dict[str, Any]]:
        """`rows` with one metric alone. Raises as `rows`."""
        name = metric_name(metric)
        return [{key: row[key] for key in row if key not in FIGURES or key == name} for row in self.rows(name)]

    def _more(self, row: Mapping[str, Any], figures: Sequence[str]) -> dict[str, float | None]:
        record = self.records.get((row["cell"], row["seed"])) if figures else None
        return {name: FIGURES[name].of(record) if record else None for name in figures}

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return [self._row(position, seed) for position in self.manifest["positions"] for seed in self.seeds]

    @cached_property
    def figures(self) -> list[str]:
        """The metrics that any of its trials has, in the order of the table."""
        return [name for name in FIGURES if any(row[name] is not None for row in self._rows)]

    @cached_property
    def to_target(self) -> list[str]:
        """The families of metrics for the cost of reaching a target, such as ``seconds_to``, if any trial has their axis."""
        held = {axis for record in self.ran.values() for axis, at in record["result"]["curve"].items() if at}
        return [family for family, (axis, _) in TO_TARGET.items() if axis in held]

    @property
    def score(self) -> str:
        """The metric that its trainings are judged by: ``final_accuracy``, or ``final_return`` if all are of actors."""
        return (
            "final_accuracy"
            if "final_accuracy" in self.figures or "final_return" not in self.figures
            else "final_return"
        )

    @property
    def share(self) -> str:
        """The same as a share, for which the value of guessing is known: ``final_accuracy`` or ``normalized_return``."""
        return "final_accuracy" if self.score == "final_accuracy" else "normalized_return"

    def frame(self) -> pandas.DataFrame:
        """`rows` as a pandas data frame.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("run.frame()", "pandas", "dashboard") from None
        return pd.DataFrame(self.rows())

    def table(self, figure: str | None = None) -> Matrix:
        """The matrix of attacks and defenses for one metric, by default the `score`: mean over seeds with its interval."""
        figure = figure or self.score
        return matrix(self.name, self.rows(figure), self.swept, figure)

    def verdict(self, setting: str | None = None) -> RunVerdict:
        """The sentence on the defenses with its test, as `fedguard show` prints it.

        Args:
            setting: one of the combinations of the other swept keys, such as ``clients.malicious=4``; None for the only one.

        Raises:
            UnknownName: there are several settings, or not this one.
            ConfigError: there is one setting, which has no name.
        """
        found = self.verdicts
        if setting is None and len(found) <= 1:
            return next(iter(found.values()), RunVerdict("No verdict: this run has no attack on the training."))
        if setting not in found:
            if not any(found):
                raise ConfigError(
                    f"verdict: expected no setting, of which this run has one; got {brief(setting)}. Leave it out."
                )
            raise UnknownName("setting", setting or "", found)
        return found[setting]

    def _repr_html_(self) -> str:
        said = [f"{setting}: {verdict}" if setting else str(verdict) for setting, verdict in self.verdicts.items()]
        return "".join(f"<p>{escape(one)}</p>" for one in said) + self.table()._repr_html_()

    @cached_property
    def verdicts(self) -> dict[str, RunVerdict]:
        """The verdict by setting; empty for a run without attacks on the training."""
        # By name, because red flags decide whether a run has a verdict, and they know algorithms, which results do not
        found: dict[str, RunVerdict] = importlib.import_module("fedguard.bench.flags.answer").answers(self)
        return found

    @cached_property
    def checks(self) -> Any:
        """The red flags, as `fedguard lint` raises them (`fedguard.bench.flags.lint.Lint`)."""
        return importlib.import_module("fedguard.bench.flags.lint").lint_run(self)

    def breakdown(self, key: str = "clients.malicious", figure: str | None = None) -> Breakdown:
        """One metric, by default the `share`, over a swept key, for each attack and defense and for the worst attack.

        Raises:
            UnknownName: the key is not swept, or there is no such figure.
        """
        figure = figure or self.share
        rows = self.rows(figure)
        return breakdown(self.name, rows, [self._reference(row) for row in rows], self.swept, key, figure)

    def privacy(self) -> Trilemma:
        """Epsilon x worst-case accuracy x leakage, one point for each defense and combination of the other swept keys.

        Raises:
            ConfigError: the run has no attack on the clients' privacy.
        """
        return trilemma(self.name, self.rows(), self.swept)

    def profile(self) -> Profile:
        """The time of each stage of the rounds, for each cell and over the whole run."""
        return profile(self.name, self.ran, self.manifest["positions"])

    def place(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Position of a row in the matrix: attack, defense, and the other swept keys."""
        return {key: row[key] for key in ("attack", "defense", *self.swept)}

    def with_status(self, status: str) -> list[dict[str, Any]]:
        """The rows that are ``ok``, ``refused``, ``failed`` or ``missing``."""
        return [row for row in self.rows() if row["status"] == status]

    @cached_property
    def failures(self) -> list[Failure]:
        """The trials that failed: of the matrix, and of the controls (no attack, silent clients) that it is compared with."""
        matrix = [
            Failure(row["cell"], row["seed"], self.place(row), row["reason"]) for row in self.with_status("failed")
        ]
        controls = set(self.manifest["controls"]) - {position["cell"] for position in self.manifest["positions"]}
        return matrix + [
            Failure(cell, seed, _place_of_control(record), record["reason"])
            for (cell, seed), record in self.records.items()
            if cell in controls and record["status"] == "failed"
        ]

    def _reference(self, row: Mapping[str, Any]) -> tuple[float, float] | None:
        """The clean accuracy of the row's defense, and chance; of returns, normalized, and 0."""
        record = self.ran.get((row["cell"], row["seed"]))
        if record is None:
            return None
        result = in_shares(record["result"])
        clean = result["final_accuracy"] if row["attack"] == "none" else result["controls"]["clean_defense"]
        chance = result["chance"]
        return None if clean is None or chance is None else (clean, chance)

    def _why_missing(self, cell: str, seed: int) -> str:
        damaged = self._read[1].get(self.folder.record_path(cell, seed))
        return "not run yet" if damaged is None else f"its record cannot be read: {damaged.why}"

    def _row(self, position: Position, seed: int) -> dict[str, Any]:
        record = self.records.get((position["cell"], seed))
        return {
            "cell": position["cell"],
            **_order_settings(position["swept"], ["attack", "defense", *self.swept]),
            "seed": seed,
            "status": record["status"] if record else "missing",
            "reason": record["reason"] if record else self._why_missing(position["cell"], seed),
            "goal": record["threat_card"]["goal"] if record else None,
            **{name: figure.of(record) if record else None for name, figure in FIGURES.items()},
            "seconds": record["cost"]["seconds"] if record and record["cost"] else None,
            "flags": " ".join(flag["flag"] for flag in record["flags"]) if record else "",
        }


def once_for_run(compute: Callable[[Run], T]) -> Callable[[Run], T]:
    """The same function, whose result is kept in the run: pages ask for it several times, and records do not change."""
    key = f"once_for_run: {compute.__module__}.{compute.__name__}"

    @wraps(compute)
    def once(run: Run) -> T:
        if key not in vars(run):
            vars(run)[key] = compute(run)
        found: T = vars(run)[key]
        return found

    return once


def _place_of_control(record: Record) -> dict[str, str]:
    card = record["threat_card"]
    return {"attack": f"{card['attack'] or 'none'} (control)", "defense": card["defense"]}


def _order_settings(swept: dict[str, str], keys: Sequence[str]) -> dict[str, str]:
    return {key: swept[key] for key in keys}
