"""Baselines: the stored run that later runs are judged against, in one JSON file to be committed and reviewed.

The file is parsed, never executed. Keys are sorted, so that two baselines can be compared line by line.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json

from fedguard.bench.gate.snapshot import BaselineSchema, Snapshot, SnapshotCell
from fedguard.bench.records.reading import content, escape_tree
from fedguard.bench.records.store import write_atomically
from fedguard.bench.results.differences import differences
from fedguard.errors import ConfigError, StoreError
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import CensoredValue

if TYPE_CHECKING:
    from fedguard.config import Plan

#: First confirmation seed: after the seeds of tuning, and before the seeds on which worst cases are chosen.
FIRST_SEED = 20_000


class Change(BaselineSchema):
    """One entry of a baseline's history: when, at which commit and why it was saved or updated, and what that changed."""

    time: float
    commit: str | None = None
    reason: str
    changes: tuple[str, ...] = ()


class Baseline(BaselineSchema):
    """A run to be held against.

    Attributes:
        created: seconds since 1970.
        confirmation: the confirmation seeds, none of them a seed of the suite. Cells that ran have values on these as well.
        snapshot: the run, with values on the suite's and the confirmation seeds.
        history: the latest last.
    """

    kind: Literal["fedguard-baseline"] = "fedguard-baseline"
    schema_: Literal[1] = Field(default=1, alias="schema")
    created: float
    confirmation: tuple[int, ...]
    snapshot: Snapshot
    history: tuple[Change, ...] = ()

    @classmethod
    def of(
        cls,
        run: Snapshot,
        confirmation: Snapshot | None,
        reason: str,
        before: Baseline | None = None,
        now: float | None = None,
    ) -> Baseline:
        """The baseline of a run.

        Args:
            confirmation: the same cells on confirmation seeds; None if none has run.
            before: the baseline that it replaces.
            now: seconds since 1970.

        Raises:
            ConfigError: a trial failed or is missing.
        """
        time_ = time.time() if now is None else now
        for one in (run, confirmation):
            _require_complete(one)
        cells = {
            key: _with(cell, confirmation.cells.get(key) if confirmation else None) for key, cell in run.cells.items()
        }
        made = cls(
            created=time_,
            confirmation=confirmation.seeds if confirmation else (),
            snapshot=run.model_copy(update={"cells": cells}),
        )
        changes = diff_baselines(before, made) if before else ()
        entry = Change(time=time_, commit=run.commit, reason=reason, changes=changes)
        return made.model_copy(update={"history": (*(before.history if before else ()), entry)})

    def text(self) -> str:
        """JSON with sorted keys."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, sort_keys=True, allow_nan=False) + "\n"

    def write(self, path: Path) -> None:
        """Write the file atomically.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, self.text().encode())
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None


def read(path: str | Path) -> Baseline:
    """Read a baseline.

    Raises:
        StoreError: there is no file, it is damaged, no baseline, or from another version of FedGuard.
    """
    remedy = "Make one with `fedguard baseline save RUN --to FILE`."
    try:
        text = content(Path(path))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}. {remedy}") from None
    try:
        told = escape_tree(from_json(text, allow_inf_nan=False))
    except ValueError:
        raise StoreError(f"{path}: expected a baseline in JSON; the file is damaged. {remedy}") from None
    if not isinstance(told, dict) or told.get("kind") != "fedguard-baseline":
        raise StoreError(f"{path}: expected a baseline; this is another file. {remedy}")
    if told.get("schema") != 1:  # before validation, which would blame some field instead of the version
        raise StoreError(f"{path}: expected schema 1; it was written by another version of FedGuard. {remedy}")
    try:
        found = Baseline.model_validate(told)
        _require_whole(found)
        return found
    except ValidationError as error:
        first = error.errors()[0]
        where, said = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    except ValueError as error:
        where, said = "positions", str(error)
    raise StoreError(f"{path}: damaged at {where}: {said}. {remedy}")


def confirmation_seeds(plan: Plan) -> tuple[int, ...]:
    """The ``gate.confirm`` first seeds from `FIRST_SEED` on that are used for no reporting, tuning or choice of attack."""
    suite = plan.suite
    taken = {*suite.seeds, *(suite.tuning.seeds if suite.tuning else ())}
    taken |= {seed for cell in plan.cells if cell.ensemble for seed in cell.ensemble.choose_on()}
    free = (seed for seed in itertools.count(FIRST_SEED) if seed not in taken)
    return tuple(itertools.islice(free, suite.gate.confirm))


def diff_baselines(before: Baseline, after: Baseline) -> tuple[str, ...]:
    """Differences between two baselines, one line each: positions, thresholds, and the mean of each metric over cells."""
    old, new = before.snapshot, after.snapshot
    places = [{one.place: one.cell for one in part.positions} for part in (old, new)]
    lines = []
    for word, count in (
        ("added", len(places[1].keys() - places[0].keys())),
        ("removed", len(places[0].keys() - places[1].keys())),
        ("configured otherwise", sum(places[0][key] != places[1][key] for key in places[0].keys() & places[1].keys())),
    ):
        lines += [f"{count} positions {word}"] if count else []
    if old.gate != new.gate:
        lines.append(f"thresholds: {'; '.join(differences(old.gate.model_dump(), new.gate.model_dump(), 'gate'))}")
    common = [(old.cells[key], new.cells[key]) for key in old.cells.keys() & new.cells.keys()]
    for figure in sorted({figure for one, two in common for figure in one.values.keys() & two.values.keys()}):
        pairs = [(one.of(figure), two.of(figure)) for one, two in common if one.of(figure) and two.of(figure)]
        means = [[_mean(list(one[side].values())) for one in pairs] for side in (0, 1)]
        differ = sum(one != two for one, two in pairs)
        if differ:
            least = [
                any(isinstance(value, CensoredValue) for one in pairs for value in one[side].values())
                for side in (0, 1)
            ]
            was, now = (
                f"{'more than ' if more else ''}{FIGURES[figure].quantity(_mean(side))}"
                for side, more in zip(means, least, strict=True)
            )
            title = FIGURES[figure].title
            lines.append(f"{title}: {was} before, {now} now, on average; {differ} of {len(pairs)} cells differ")
    return tuple(lines)


def _with(cell: SnapshotCell, more: SnapshotCell | None) -> SnapshotCell:
    """A cell with its values on further seeds."""
    if more is None:
        return cell
    figures = {*cell.values, *more.values}
    values = {one: {**cell.values.get(one, {}), **more.values.get(one, {})} for one in figures}
    never = {one: (*cell.never.get(one, ()), *more.never.get(one, ())) for one in {*cell.never, *more.never}}
    return cell.model_copy(update={"values": values, "never": never})


def _require_complete(run: Snapshot | None) -> None:
    if run is None:
        return
    for position in run.positions:
        cell = run.cells[position.cell]
        if cell.status in ("failed", "missing"):
            raise ConfigError(
                f"baseline: expected every trial run or refused; {position.words} is {cell.status} ({cell.reason}). "
                "Run the suite again, with --retry-failed where a trial failed."
            )


def _require_whole(found: Baseline) -> None:
    # A merge by hand can leave valid JSON with parts missing, on which judging would fail midway
    for position in found.snapshot.positions:
        if position.cell not in found.snapshot.cells:
            raise ValueError(f"cell {position.cell} is not in the file")
        if not {"attack", "defense"} <= position.swept.keys():
            raise ValueError(f"cell {position.cell} has no attack or no defense")
        cell, seeds = found.snapshot.cells[position.cell], set(found.snapshot.seeds)
        if cell.status == "ok" and not any(seeds <= values.keys() for values in cell.values.values()):
            raise ValueError(f"cell {position.cell} has no metric with all of the seeds {sorted(seeds)}")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
