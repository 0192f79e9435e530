"""Rows of a run as CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from fedguard.bench.records.store import write_atomically
from fedguard.bench.results.run import Run
from fedguard.errors import MissingExtra, StoreError


def write_rows(run: Run, path: Path, form: str) -> None:
    """Write ``run.rows()`` to ``path`` as ``csv``, ``json`` or ``parquet``.

    Raises:
        StoreError: the file cannot be written.
        MissingExtra: Parquet without pandas and pyarrow.
    """
    try:
        if form == "parquet":
            _write_parquet(run, path)
        elif form == "json":
            write_atomically(path, json.dumps(run.rows(), indent=1, allow_nan=False).encode())
        else:
            text = io.StringIO()
            writer = csv.DictWriter(text, fieldnames=list(run.rows()[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(run.rows())
            write_atomically(path, text.getvalue().encode())
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None


def _write_parquet(run: Run, path: Path) -> None:
    try:
        run.frame().to_parquet(path)
    except ImportError:
        raise MissingExtra("--to NAME.parquet", "pyarrow", "dashboard") from None
