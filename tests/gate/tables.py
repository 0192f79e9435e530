"""Small planted runs and baselines, as a gate knows them: nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedguard.bench.gate.baseline import Baseline
from fedguard.bench.gate.judge import judge
from fedguard.bench.gate.snapshot import Snapshot, SnapshotCell, SnapshotPosition
from fedguard.bench.gate.verdict import GateVerdict
from fedguard.config.schema import GateSection
from fedguard.metrics.stats import CensoredValue

SEEDS, FRESH = (0, 1, 2), tuple(range(20_000, 20_008))

#: A cell's figures, each seed by seed.
Figures = Mapping[str, Sequence[float]]


def cell(figures: Figures, seeds: Sequence[int] = SEEDS, **more: Any) -> SnapshotCell:
    values = {figure: dict(zip(seeds, found, strict=True)) for figure, found in figures.items()}
    never = {figure: tuple(seed for seed in by if isinstance(by[seed], CensoredValue)) for figure, by in values.items()}
    more = {"never": {figure: found for figure, found in never.items() if found}, **more}
    config = {"task": {"data": {"name": "digits"}}, "training": {"lr": 0.1, "rounds": 3}}
    return SnapshotCell(**{"config": config, "status": "ok", "data": "d1", "values": values, **more})


def snapshot(
    cells: Mapping[str, SnapshotCell], seeds: Sequence[int] = SEEDS, gate: Mapping[str, Any] | None = None, **more: Any
) -> Snapshot:
    """Each cell stands at the defense of its own name, against no attack."""
    known: dict[str, Any] = {
        "suite": "planted",
        "fedguard": "0.1.0",
        "results_version": 2,
        "commit": "abc",
        "environment": {"torch": "2.13.0", "python": "3.11.7"},
        "gate": GateSection(**{"audit": False, **(gate or {})}),
        "seeds": tuple(seeds),
        "positions": tuple(SnapshotPosition(swept={"attack": "none", "defense": name}, cell=name) for name in cells),
        "cells": dict(cells),
    }
    return Snapshot(**{**known, **more})


def accuracies(**cells: Sequence[float]) -> dict[str, SnapshotCell]:
    """Cells by name, with their final accuracies on `SEEDS`."""
    return {name: cell({"final_accuracy": values}) for name, values in cells.items()}


def baseline(run: Snapshot, fresh: Snapshot | None = None) -> Baseline:
    return Baseline.of(run, fresh, "saved", now=1.0)


def judged(
    before: Mapping[str, Sequence[float]],
    after: Mapping[str, Sequence[float]],
    figure: str = "final_accuracy",
    gate: Mapping[str, Any] | None = None,
    gate_before: Mapping[str, Any] | None = None,
    **more: Any,
) -> GateVerdict:
    """The verdict on cells with 3 + 8 values each: those of the suite's seeds, and those of the fresh ones.

    Of fresh values only the cells are handed out that the gate asks for. ``gate_before``: the baseline's own, if it is another.
    """

    def parts(cells: Mapping[str, Sequence[float]], gate: Mapping[str, Any] | None) -> tuple[Snapshot, Snapshot]:
        first = {name: cell({figure: values[:3]}) for name, values in cells.items()}
        second = {name: cell({figure: values[3:]}, FRESH) for name, values in cells.items()}
        return snapshot(first, gate=gate), snapshot(second, FRESH, gate=gate)

    now, fresh = parts(after, gate)

    def confirm(cells: Sequence[str], seeds: Sequence[int]) -> Snapshot:
        assert tuple(seeds) == FRESH
        return snapshot({name: fresh.cells[name] for name in cells}, FRESH, gate=gate)

    return judge(
        now, baseline(*parts(before, gate if gate_before is None else gate_before)), confirm=confirm, now=2.0, **more
    )


def never(cells: Sequence[str], seeds: Sequence[int]) -> Snapshot:
    """For comparisons that must not train."""
    raise AssertionError(f"{cells} were run on {seeds}")
