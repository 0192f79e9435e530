"""Snapshots of runs for the gate: the metrics of each cell, seed by seed, with configuration and code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from fedguard.bench.records.schema.types import MetricName, SweptValues
from fedguard.bench.results.places import label
from fedguard.bench.results.run import Run
from fedguard.bench.running.code import code_of
from fedguard.config.schema import GateSection
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import CensoredValue

if TYPE_CHECKING:
    from fedguard.config import Plan, PlannedCell

#: Keys of the environment that may change metrics slightly: another value is worth a warning.
COMPARED = ("fedguard", "torch", "numpy", "scipy", "scikit-learn", "python", "platform", "device", "threads")


class BaselineSchema(BaseModel):
    """Base of stored forms: validated when read, no unknown keys, all numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SnapshotCell(BaselineSchema):
    """One cell.

    Attributes:
        config: its canonical configuration.
        status: ``ok``, or the worst status of its trials: ``refused``, ``missing`` or ``failed``; reason: of the first such.
        data: the digest of its data set; None if no trial has a record.
        values: each of its metrics, by seed.
        never: for costs of reaching a target, the seeds that never reached it; their values are lower bounds.
    """

    config: dict[str, Any]
    status: Literal["ok", "refused", "failed", "missing"]
    reason: str | None = None
    data: str | None = None
    values: dict[MetricName, dict[int, float]] = {}
    never: dict[MetricName, tuple[int, ...]] = {}

    def of(self, figure: str) -> dict[int, float]:
        """A metric by seed, as `CensoredValue` where it is a lower bound; empty if the cell lacks it."""
        never = self.never.get(figure, ())
        return {
            seed: CensoredValue(value) if seed in never else value
            for seed, value in self.values.get(figure, {}).items()
        }


class SnapshotPosition(BaselineSchema):
    """Position of a cell in the matrix: attack, defense, and each other swept key."""

    swept: SweptValues
    cell: str

    @property
    def place(self) -> tuple[tuple[str, str], ...]:
        """Identity of the position, independent of the order of its keys."""
        return tuple(sorted(self.swept.items()))

    @property
    def words(self) -> str:
        return label(self.swept)


class Snapshot(BaselineSchema):
    """One run.

    Attributes:
        suite: its name.
        results_version: of the records, see `fedguard.config.cells`.
        commit: commit of FedGuard's checkout, if known; code: the digests of FedGuard and of each plug-in.
        environment: versions and machine, see `COMPARED`; several values of one key are joined by commas.
        gate: the watched metrics, and how much worse each may become.
        seeds: of the suite.
        positions: of the matrix, in its order; cells: by their hashes.
    """

    suite: str
    fedguard: str
    results_version: int
    commit: str | None = None
    code: dict[str, str] = {}
    environment: dict[str, str] = {}
    gate: GateSection = GateSection()
    seeds: tuple[int, ...]
    positions: tuple[SnapshotPosition, ...]
    cells: dict[str, SnapshotCell]

    @classmethod
    def of(cls, run: Run, laid_out: Plan) -> Snapshot:
        """The snapshot of a run, whose plan is `plan_of` it."""
        rows: dict[str, list[dict[str, Any]]] = {}
        asked = tuple(laid_out.suite.gate.metrics)
        for row in run.rows(*asked):
            rows.setdefault(row["cell"], []).append(row)
        cells = {cell.id: cell for _, cell in laid_out.positions}
        made = [record["environment"] for record in run.records.values()]
        return cls(
            suite=laid_out.suite.name,
            fedguard=str(run.manifest.get("fedguard")),
            results_version=run.manifest.get("results_version", 0),
            commit=", ".join(_all(one.get("git_commit") for one in made)) or None,
            code=_join_values(one.get("code", {}) for one in made),
            environment=_join_values({key: one.get(key) for key in COMPARED} for one in made),
            gate=laid_out.suite.gate,
            seeds=tuple(run.seeds),
            positions=tuple(SnapshotPosition(swept=swept, cell=cell.id) for swept, cell in laid_out.positions),
            cells={key: _measure_cell(run, cell, rows.get(key, []), asked) for key, cell in cells.items()},
        )


def plan_of(run: Run) -> Plan:
    """The suite of a run, laid out again; its plug-ins are imported from the folder that the run's manifest names.

    Raises:
        StoreError: the suite is not in the run's folder.
        ConfigError: it cannot be read or laid out.
    """
    from fedguard.config import plan, read_suite

    read = run.folder.config()
    folder = run.manifest.get("folder")
    document = dataclasses.replace(read, folder=Path(folder) if folder else None, source=run.manifest.get("source"))
    return plan(document, read_suite(document))


def stale(run: Run, laid_out: Plan) -> tuple[str, ...]:
    """Why a run does not show what the installed code does: another layout of its suite, or records made by other code."""
    ran = [(position["cell"], position["swept"]) for position in run.manifest["positions"]]
    if [(cell.id, swept) for swept, cell in laid_out.positions] != ran:
        return (f"run {run.name}: the installed FedGuard lays its suite out otherwise: run the suite again.",)
    cells = {cell.id: cell for cell in laid_out.cells}
    found, modules = {}, set[str]()
    for (cell, _), record in run.records.items():
        made, now = record["environment"].get("code", {}), _code_digests(cells[cell])
        # "fedguard" always: a record without digests cannot show that it is of the installed code
        other = {"fedguard", *made} - {name for name in made if made[name] == now.get(name)}
        if other:
            found[cell] = record["label"]
            modules |= other
    if not found:
        return ()
    whose, one = ", ".join(sorted(modules)), next(iter(found.values()))
    return (
        f"run {run.name}: {len(found)} cells were made by other code of {whose} than is installed, such as {one}: "
        "run the suite again with --fresh.",
    )


def _code_digests(cell: PlannedCell) -> dict[str, str]:
    """The code of a cell, and of the attacks that an ensemble chooses among."""
    return {module: digest for one in (cell, *cell.members) for module, digest in code_of(one).items()}


def _measure_cell(run: Run, cell: PlannedCell, rows: Iterable[Mapping[str, Any]], asked: Iterable[str]) -> SnapshotCell:
    rows = list(rows) or [{"status": "missing", "reason": "not run as it is laid out now"}]
    bad = next((row for status in _WORST for row in rows if row["status"] == status), None)
    records = [run.records[cell.id, seed] for seed in run.seeds if (cell.id, seed) in run.records]
    data = _all(record["environment"].get("data") for record in records)
    figures = dict.fromkeys((*FIGURES, *asked))
    values = {figure: {row["seed"]: row[figure] for row in rows if row.get(figure) is not None} for figure in figures}
    # Apart from the values, since JSON has no censored numbers
    never = {
        figure: tuple(seed for seed, value in by.items() if isinstance(value, CensoredValue))
        for figure, by in values.items()
    }
    return SnapshotCell(
        config=cell.canonical,
        status=bad["status"] if bad else "ok",
        reason=bad["reason"] if bad else None,
        data=", ".join(data) or None,
        values={figure: {seed: float(value) for seed, value in by.items()} for figure, by in values.items() if by},
        never={figure: seeds for figure, seeds in never.items() if seeds},
    )


_WORST = ("failed", "missing", "refused")


def _all(values: Iterable[Any]) -> list[str]:
    """The different values, without None, in a fixed order."""
    return sorted({str(value) for value in values if value is not None})


def _join_values(parts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """For each key the different values of all parts."""
    parts = list(parts)
    keys = sorted({key for part in parts for key in part})
    return {key: ", ".join(_all(part.get(key) for part in parts)) for key in keys}
