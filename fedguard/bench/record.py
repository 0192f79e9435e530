"""Records: what is stored of a trial, how it is sealed, and what of it a seed must reproduce."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fedguard.config import Cell
from fedguard.config.cells import RESULTS_VERSION

Record = dict[str, Any]


def seal(cell: Cell, seed: int, body: Mapping[str, Any]) -> Record:
    """A record with its identity in front, the cell's configuration, and a checksum."""
    head = {"schema": 1, "cell": cell.id, "seed": seed, "label": cell.label, "results_version": RESULTS_VERSION}
    record = {**head, **body, "config": cell.canonical}
    return {**record, "sha256": checksum(record)}


def checksum(record: Mapping[str, Any]) -> str:
    """SHA-256 over the record without its own checksum."""
    body = {key: value for key, value in record.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()


def reproducible(record: Mapping[str, Any]) -> Record:
    """The part of a record that one seed must reproduce to the last bit: all but cost, environment and checksum."""
    return {key: value for key, value in record.items() if key not in ("cost", "environment", "sha256")}
