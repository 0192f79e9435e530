"""What a run folder says of its run: the suite, its cells, and who made it when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import yaml

from fedguard.bench.records.store import RunFolder
from fedguard.bench.running.selection import Selection
from fedguard.config import Plan
from fedguard.config.cells import RESULTS_VERSION
from fedguard.errors import StoreError


def write_manifest(folder: RunFolder, plan: Plan, races: Mapping[str, Selection]) -> None:
    """Write the manifest and the suite; when the run was first begun stays as it was.

    Args:
        races: cell id of an ensemble -> how its attack is chosen.

    Raises:
        StoreError: the folder cannot be written.
    """
    suite = plan.suite
    try:
        created = folder.manifest()["created"]
    except (StoreError, KeyError):  # the first run into this folder, or a damaged manifest, which is made anew
        created = time.time()
    manifest: Mapping[str, Any] = {
        "schema": 1,
        "name": suite.name,
        "folder": None if plan.known.folder is None else str(plan.known.folder),
        "fedguard": version("fedguard"),
        "results_version": RESULTS_VERSION,
        "created": created,
        "started": time.time(),
        "seeds": list(suite.seeds),
        "swept": list(suite.matrix),
        "positions": [{"cell": cell.id, "swept": swept} for swept, cell in plan.positions],
        "corners": [cell.id for cell in plan.corners],
        "tuning": suite.tuning.model_dump(mode="json") if suite.tuning else None,
        "ensembles": [
            {"cell": cell, "seeds": race.seeds, "members": {one.id: str(one.attack) for one in race.members}}
            for cell, race in races.items()
        ],
    }
    config = suite.model_dump(mode="json", by_alias=True)
    folder.write_manifest(manifest, yaml.safe_dump(config, sort_keys=False))
