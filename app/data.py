"""Cached reads of runs. The cache follows the files: a changed or added record is seen at the next rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from fedguard.bench.run import Run
from fedguard.bench.store import runs


def run_names(store: Path) -> list[str]:
    """The runs of a store, the latest first."""
    return [folder.path.name for folder in runs(store)]


def open_run(store: Path, name: str) -> Run:
    """A run with its records in memory.

    Raises:
        StoreError: its manifest cannot be read.
    """
    return _opened(str(store), name, _stamp(store / name))


def rows(run: Run) -> list[dict[str, Any]]:
    """The rows of a run, with accuracies in percent."""
    return [
        {key: 100 * value if isinstance(value, float) and key in _SHARES else value for key, value in row.items()}
        for row in run.rows()
    ]


_SHARES = ("final_accuracy", "best_accuracy", "worst_class_accuracy", "accuracy_drop", "attack_success")


def _stamp(folder: Path) -> tuple[int, int]:
    """Changes whenever a record is written: number of records, and the latest time."""
    times = [path.stat().st_mtime_ns for path in folder.glob("cells/*/seed-*.json")]
    manifest = folder / "manifest.json"
    return len(times), max([*times, manifest.stat().st_mtime_ns if manifest.is_file() else 0])


@st.cache_resource(max_entries=8, show_spinner="Reading records ...")
def _opened(store: str, name: str, stamp: tuple[int, int]) -> Run:  # noqa: ARG001  part of the cache's key
    run = Run.open(Path(store) / name, store)
    _ = run.records  # read now, once
    return run
