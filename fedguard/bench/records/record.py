"""Records of trials: their form, their seal, and the part that a seed must reproduce."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from fedguard.bench.records.reading import parse_json
from fedguard.bench.records.schema import RECORD, Record, Result
from fedguard.bench.records.schema.result import Axis, Measured
from fedguard.bench.records.schema.types import SCHEMA
from fedguard.metrics.figures import number_at

if TYPE_CHECKING:
    from fedguard.config import PlannedCell

UNITS = {"accuracy, success, drop, tax, chance, share": "share in [0, 1]", "loss": "nats", "seconds": "s", "bytes": "B"}

_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"}$')


def build_record(cell: PlannedCell, seed: int, body: Mapping[str, Any]) -> Record:
    """A record with its identity in front, and the units and the cell's configuration behind."""
    from fedguard.config.cells import RESULTS_VERSION  # here, since it loads torch, which readers do not need

    head = {"schema": SCHEMA, "cell": cell.id, "seed": seed, "label": cell.label, "results_version": RESULTS_VERSION}
    return cast(Record, {**head, **body, "units": UNITS, "config": cell.canonical})


def to_text(record: Mapping[str, object]) -> bytes:
    """JSON that ends in the SHA-256 of all of it, computed with that field left empty."""
    body = {key: value for key, value in record.items() if key != "sha256"}
    text = json.dumps({**body, "sha256": ""}, allow_nan=False).encode()
    return text[:-2] + hashlib.sha256(text).hexdigest().encode() + text[-2:]


def from_text(text: bytes) -> Record:
    """The record from the output of `to_text`.

    Raises:
        ValueError: the text is cut, changed, or no record; in words.
    """
    require_seal(text)
    record = parse_json(RECORD, text)
    if record["status"] == "ok" and not record["result"].keys() & {"final_accuracy", "returns"}:
        raise ValueError("damaged at result.final_accuracy: expected it, or returns; got neither")
    return record


def require_seal(text: bytes) -> None:
    """Raise ValueError unless the text is as `to_text` wrote it."""
    seal = _SEAL.search(text, max(0, len(text) - 100))
    if seal is None or hashlib.sha256(text[: seal.start(1)] + text[seal.end(1) :]).hexdigest().encode() != seal[1]:
        raise ValueError("the checksum does not fit")


def silent_mean(result: Result) -> float | None:
    """The plain mean's accuracy while the malicious clients send nothing; records of older versions call it ``oracle_mean``."""
    found = number_at(result, ("controls", "silent_mean"))
    return number_at(result, ("references", "oracle_mean")) if found is None else found


def curve(record: Record, measure: Measured, over: Axis = "round") -> list[tuple[float, float]]:
    """The evaluations of a trial that have a measure, each with its position on the axis; empty if the trial did not run."""
    if record["status"] != "ok":
        return []
    found = record["result"]["curve"]
    if measure not in found:
        return []
    return [(at, value) for at, value in zip(found[over], found[measure], strict=True) if value is not None]


def reproducible(record: Record) -> dict[str, object]:
    """The part of a record that one seed must reproduce to the last bit: all but cost, environment and checksum."""
    return {key: value for key, value in record.items() if key not in ("cost", "environment", "sha256")}
