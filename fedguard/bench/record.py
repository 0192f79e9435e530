"""Records: what is stored of a trial, how it is sealed, and what of it a seed must reproduce."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fedguard.bench.reading import parsed
from fedguard.bench.schema import RECORD

if TYPE_CHECKING:
    from fedguard.config import Cell

Record = dict[str, Any]

UNITS = {"accuracy, success, drop, tax, chance, share": "share in [0, 1]", "loss": "nats", "seconds": "s", "bytes": "B"}

_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"}$')


def identified(cell: Cell, seed: int, body: Mapping[str, Any]) -> Record:
    """A record with its identity in front, and the units and the cell's configuration behind."""
    from fedguard.config.cells import RESULTS_VERSION  # here, since it loads torch, which readers do not need

    head = {"schema": 1, "cell": cell.id, "seed": seed, "label": cell.label, "results_version": RESULTS_VERSION}
    return {**head, **body, "units": UNITS, "config": cell.canonical}


def to_text(record: Record) -> bytes:
    """JSON that ends in the SHA-256 of all of it, computed with that field left empty."""
    body = {key: value for key, value in record.items() if key != "sha256"}
    text = json.dumps({**body, "sha256": ""}, allow_nan=False).encode()
    return text[:-2] + hashlib.sha256(text).hexdigest().encode() + text[-2:]


def from_text(text: bytes) -> Record:
    """The record behind `to_text`.

    Raises:
        ValueError: the text is cut, changed, or no record; in words.
    """
    require_seal(text)
    return cast(Record, parsed(RECORD, text))


def require_seal(text: bytes) -> None:
    """Raise ValueError unless the text is as `to_text` wrote it."""
    seal = _SEAL.search(text, max(0, len(text) - 100))
    if seal is None or hashlib.sha256(text[: seal.start(1)] + text[seal.end(1) :]).hexdigest().encode() != seal[1]:
        raise ValueError("the checksum does not fit")


def number_at(part: Mapping[str, Any] | None, path: Sequence[str]) -> float | None:
    """The number at a path of a record; None where a part of the path does not apply."""
    value: Any = part
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def silent_mean(result: Mapping[str, Any]) -> float | None:
    """The plain mean's accuracy while the colluders send nothing; records of older versions call it ``oracle_mean``."""
    found = number_at(result, ("corners", "silent_mean"))
    return number_at(result, ("references", "oracle_mean")) if found is None else found


def reproducible(record: Record) -> Record:
    """The part of a record that one seed must reproduce to the last bit: all but cost, environment and checksum."""
    return {key: value for key, value in record.items() if key not in ("cost", "environment", "sha256")}
