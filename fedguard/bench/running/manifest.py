"""The manifest of a run folder: the suite, its cells, origin and time; and whether a suite may run in the folder."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from fedguard.bench.records.schema import Manifest
from fedguard.bench.records.schema.types import SCHEMA
from fedguard.bench.records.store import RunFolder
from fedguard.bench.running.selection import AttackSelection
from fedguard.config import Plan
from fedguard.config.cells import RESULTS_VERSION
from fedguard.errors import StoreError


def choose_folder(plan: Plan, store: Path, name: str | None = None) -> RunFolder:
    """The folder of a suite's run.

    Args:
        name: of the folder, instead of the suite's own.

    Raises:
        StoreError: another suite has been run in the folder of that name.
    """
    folder = RunFolder(store / (name or plan.suite.name))
    if name is None and not folder.path.exists() and (old := _run_without_name(plan, store)):
        return old
    if _holds_another(folder, plan):
        source = folder.manifest().get("source")
        raise StoreError(
            f"{folder.path}: expected a run of this suite; got one of another, {source or 'a mapping of Python'}, none of "
            "whose cells is among its own. Give this run another name (--name, or name= in Python), or remove the folder."
        )
    return folder


def _run_without_name(plan: Plan, store: Path) -> RunFolder | None:
    """The run of a suite without a name that an earlier version stored under ``suite``, as it did with every such suite."""
    folder, name = RunFolder(store / "suite"), plan.suite.name
    unnamed = name.startswith("untitled-") if plan.source is None else name == Path(plan.source).stem
    try:
        manifest = folder.manifest()
    except StoreError:
        return None
    same = plan.source == manifest.get("source") or (
        plan.source is not None and manifest.get("source_from_run") == _from_run(folder, plan)
    )
    cells = [cell.id for _, cell in plan.positions]
    found = unnamed and same and manifest["name"] == "suite" and cells == [one["cell"] for one in manifest["positions"]]
    return folder if found else None


def _holds_another(folder: RunFolder, plan: Plan) -> bool:
    """Whether a folder holds the run of another suite: one with another source or none, and without a cell in common.

    Cells have other ids in another results version; then the positions of the matrix are compared.
    """
    try:
        manifest = folder.manifest()
    except StoreError:  # none is there, or a damaged one, which a run makes anew
        return False
    source, here = manifest.get("source"), manifest.get("source_from_run")
    if plan.source is None:
        same = source is None  # a mapping of Python, as then
    else:
        same = plan.source == source or (here is not None and here == _from_run(folder, plan))
    if same:
        return False
    if manifest["results_version"] != RESULTS_VERSION:
        return [one["swept"] for one in manifest["positions"]] != [swept for swept, _ in plan.positions]
    return _cells(manifest).isdisjoint(cell.id for cell in plan.cells)


def describe_orphan_run(folder: RunFolder, plan: Plan) -> str | None:
    """A note if a suite was changed so much that it has no cell in common with its run; else None."""
    try:
        stored = _cells(folder.manifest())
    except StoreError:
        return None
    if not stored.isdisjoint(cell.id for cell in plan.cells):
        return None
    return f"no cell of the run before is in this suite any more: the records of its {len(stored)} cells are kept, not shown."


def _cells(manifest: Manifest) -> set[str]:
    return {*(one["cell"] for one in manifest["positions"]), *manifest["controls"]}


def _from_run(folder: RunFolder, plan: Plan) -> str | None:
    """The suite's source relative to the run's folder, since both may be moved together."""
    return None if plan.source is None else Path(os.path.relpath(plan.source, folder.path)).as_posix()


def uses_secret_noise(folder: RunFolder) -> bool:
    """Whether the run in a folder draws its noise from the operating system, and has to continue so."""
    try:
        return folder.manifest().get("secret_noise", False)
    except StoreError:
        return False


def write_manifest(
    folder: RunFolder, plan: Plan, races: Mapping[str, AttackSelection], secret_noise: bool = False
) -> None:
    """Write the manifest and the suite; when the run was first begun stays as it was.

    Args:
        races: cell id of an ensemble -> how its attack is chosen.
        secret_noise: whether noise for privacy comes from the operating system.

    Raises:
        StoreError: the folder cannot be written.
    """
    suite = plan.suite
    try:
        created = folder.manifest()["created"]
    except (StoreError, KeyError):  # the first run into this folder, or a damaged manifest, which is made anew
        created = time.time()
    manifest: Mapping[str, Any] = {
        "schema": SCHEMA,
        "name": suite.name,
        "folder": None if plan.known.folder is None else str(plan.known.folder),
        "source": plan.source,
        "source_from_run": _from_run(folder, plan),
        "fedguard": version("fedguard"),
        "results_version": RESULTS_VERSION,
        "created": created,
        "started": time.time(),
        "seeds": list(suite.seeds),
        "swept": list(suite.matrix),
        "positions": [{"cell": cell.id, "swept": swept} for swept, cell in plan.positions],
        "controls": [cell.id for cell in plan.controls],
        "tuning": suite.tuning.model_dump(mode="json") if suite.tuning else None,
        "ensembles": [
            {"cell": cell, "seeds": race.seeds, "members": {one.id: str(one.attack) for one in race.members}}
            for cell, race in races.items()
        ],
        "secret_noise": secret_noise,
    }
    pins = {cell.config.training.first_model: cell.training.first_model for _, cell in plan.positions}
    config = _pin_first_models(suite.model_dump(mode="json", by_alias=True), pins)
    folder.write_manifest(manifest, yaml.safe_dump(config, sort_keys=False))


def _pin_first_models(value: Any, pins: Mapping[Any, Any], key: str = "") -> Any:
    """The settings with each first model named by its digest too, so that they mean the same file later."""
    if isinstance(value, dict):
        return {name: _pin_first_models(below, pins, name) for name, below in value.items()}
    if isinstance(value, list):
        return [_pin_first_models(below, pins, key) for below in value]
    return pins.get(value, value) if key in ("first_model", "training.first_model") else value
