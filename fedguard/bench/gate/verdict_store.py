"""Verdicts stored beside the run that they judge, in ``runs/<run>/gate/<time>.json``, for the dashboard."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fedguard.bench.gate.verdict import GateVerdict
from fedguard.bench.records.reading import DamagedFile, content, json_of
from fedguard.bench.records.store import RunFolder, write_atomically
from fedguard.errors import StoreError


def keep(verdict: GateVerdict, folder: RunFolder) -> Path:
    """Write a verdict beside its run.

    Raises:
        StoreError: it cannot be written.
    """
    path = folder.path / "gate" / f"{verdict.time:017.6f}.json"  # of equal length, so that names sort by time
    try:
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, as_json(verdict).encode())
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None
    return path


def verdicts(folder: RunFolder, broken: Callable[[DamagedFile], None] = lambda found: None) -> list[GateVerdict]:
    """The verdicts on a run, the oldest first. Unreadable files are reported to ``broken`` and left out."""
    found = []
    there = folder.path / "gate"
    for path in sorted(one for one in (there.iterdir() if there.is_dir() else ()) if one.suffix == ".json"):
        try:
            found.append(GateVerdict.from_dict(json_of(content(path))))
        except (OSError, ValueError) as error:
            broken(DamagedFile(path, f"{error}. It is left out; remove it"))
    return found


def as_json(verdict: GateVerdict) -> str:
    """`GateVerdict.as_dict` as JSON."""
    return json.dumps(verdict.as_dict(), indent=1, allow_nan=False) + "\n"
