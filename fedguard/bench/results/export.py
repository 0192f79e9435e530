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
            _write(path, json.dumps(run.rows(), indent=1, allow_nan=False))
        else:
            text = io.StringIO()
            writer = csv.DictWriter(text, fieldnames=list(run.rows()[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(run.rows())
            _write(path, text.getvalue())
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}.") from None


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # a device or a pipe, such as /dev/stdout, must not be replaced by a file
        path.write_bytes(text.encode())
    else:
        write_atomically(path, text.encode())


def _write_parquet(run: Run, path: Path) -> None:
    try:
        run.frame().to_parquet(path)
    except ImportError:
        raise MissingExtra("--to NAME.parquet", "pyarrow", "dashboard") from None
