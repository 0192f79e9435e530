"""Cached reads of runs. The cache follows the files: a changed or added record is seen in the next script run."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamlit as st

from fedguard.bench.records.schema import Manifest
from fedguard.bench.records.store import runs
from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run
from fedguard.errors import FedGuardError

#: Statuses of a cell, the worst first: one failed seed makes the cell a failed one
STATUSES = ("failed", "missing", "refused", "ok")

#: Prefix of the names of the Lab's runs
LAB = "lab-"

#: Number of files, sum of their bytes, and sum of their modification times in ns
Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Summary:
    """One run as a row.

    Attributes:
        name: name of its folder.
        manifest: its manifest; None if it cannot be read.
        cells: numbers of positions of the matrix, and of failed controls, by their status in `STATUSES`.
        damaged: records that cannot be read.
        error: why the manifest cannot be read, or "".
    """

    name: str
    manifest: Manifest | None = field(default=None, repr=False)
    cells: dict[str, int] = field(default_factory=dict)
    damaged: int = 0
    error: str = ""

    @property
    def state(self) -> str:
        """``complete`` if every trial has a result, or was refused with a reason."""
        if self.error:
            return f"cannot be read: {self.error}"
        if self.cells["missing"] or self.cells["failed"] or self.damaged:
            return "not complete"
        return "complete"


def run_names(store: Path) -> list[str]:
    """The runs of a store, the latest first; runs of the Lab follow, since readers rarely look for them."""
    return sorted((folder.path.name for folder in runs(store)), key=lambda name: name.startswith(LAB))


def open_run(store: Path, name: str) -> Run:
    """A run with its records in memory. All sessions share it, so callers must not change it.

    Raises:
        StoreError: its manifest cannot be read.
    """
    return _load_run(str(store), name, stamp(store / name))


def summary(store: Path, name: str) -> Summary:
    """One run as a row, even if it is damaged. Its records are read once and not kept in memory."""
    return _summarize_run(str(store), name, stamp(store / name))


def sum_up(run: Run) -> Summary:
    """An open run as a row."""
    worst: dict[tuple[str, ...], str] = {}
    for row in run.rows():
        place = (row["cell"], row["attack"], row["defense"], setting(row, run.swept))
        worst[place] = min(worst.get(place, "ok"), row["status"], key=STATUSES.index)
    counts = Counter(worst.values())
    counts["failed"] += len({one.cell for one in run.failures} - {place[0] for place in worst})  # controls
    return Summary(run.name, run.manifest, {status: counts[status] for status in STATUSES}, len(run.broken))


def label(row: Mapping[str, Any], swept: Sequence[str]) -> str:
    """A position of the matrix: ``alie against median, clients.malicious = 4``."""
    where = setting(row, swept)
    return f"{row['attack']} against {row['defense']}" + (f", {where}" if where else "")


def stamp(folder: Path) -> Stamp:
    """A value that changes whenever a record or the manifest does."""
    found = [one.stat(follow_symlinks=False) for one in _entries(folder) if one.name == "manifest.json"]
    found += [
        file.stat(follow_symlinks=False) for cell in _entries(folder / "cells") for file in _entries(Path(cell.path))
    ]
    return len(found), sum(one.st_size for one in found), sum(one.st_mtime_ns for one in found)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # no folder, or none that may be read
        return []


@st.cache_resource(max_entries=4, show_spinner="Reading records ...")
def _load_run(store: str, name: str, stamp: Stamp) -> Run:  # noqa: ARG001  part of the cache's key
    run = Run.open(Path(store) / name, store)
    with _suspend_gc():
        run.rows()  # read now, once
    return run


@st.cache_data(max_entries=1000, show_spinner=False)
def _summarize_run(store: str, name: str, stamp: Stamp) -> Summary:  # noqa: ARG001  part of the cache's key
    try:
        with _suspend_gc():
            return sum_up(Run.open(Path(store) / name, store))
    except FedGuardError as error:
        return Summary(name, error=str(error))


@contextmanager
def _suspend_gc() -> Iterator[None]:
    """Suspend garbage collection: records are many small objects and no garbage, and collections double the time to read them.

    The objects are frozen afterwards, so that later collections do not traverse them either.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
