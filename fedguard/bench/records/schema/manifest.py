"""The manifest: the content of a run."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from fedguard.bench.records.schema.types import STRICT, Anything, CellId, Schema, SweptKey, SweptValues, Time
from fedguard.metrics.quantities import Count


class Position(TypedDict):
    """Position of a cell in the matrix: attack, defense, and each other swept key.

    Attributes:
        cell: its id.
        swept: the value of each swept key, in words.
    """

    cell: CellId
    swept: SweptValues


class EnsembleRecord(TypedDict):
    """A worst case: the attacks among which it chose, by their cells, and the seeds on which it did.

    Attributes:
        cell: its id.
        seeds: those of the selection.
        members: by cell, the attacks.
    """

    cell: CellId
    seeds: list[Count]
    members: dict[str, str]


def _check_layout(manifest: Any) -> Any:
    wanted = {"attack", "defense", *manifest["swept"]}
    for number, position in enumerate(manifest["positions"]):
        if missing := sorted(wanted - position["swept"].keys()):
            raise ValueError(f"positions.{number}.swept: expected a value of {', '.join(missing)}")
    if len(set(manifest["seeds"])) < len(manifest["seeds"]):
        raise ValueError("seeds: expected each of them once")
    return manifest


@with_config(STRICT)
class Manifest(TypedDict):
    """What a run consists of.

    Attributes:
        schema: of this document.
        name: of the suite.
        folder: folder of the suite, in which its plug-ins are searched.
        source, source_from_run: the file that it was read from, and its path from here; null for a Python mapping.
        fedguard, results_version: versions that ran it; records of another results version are of other code.
        created, started: when the run was begun, and when it was last continued, in seconds since 1970.
        seeds: of the suite.
        swept: the keys of the matrix.
        positions: of the matrix, in its order.
        controls: cells that others are compared with, and that have no position.
        tuning: how the defenses were tuned; None if they were not.
        ensembles: the worst cases.
        secret_noise: whether noise for privacy comes from the operating system.
    """

    schema: Schema
    name: str
    folder: NotRequired[str | None]
    source: NotRequired[str | None]
    source_from_run: NotRequired[str | None]
    fedguard: str
    results_version: Count
    created: Time
    started: Time
    seeds: Annotated[list[Count], Field(min_length=1)]
    swept: list[SweptKey]
    positions: Annotated[list[Position], Field(min_length=1)]
    controls: list[CellId]
    tuning: NotRequired[Anything | None]
    ensembles: NotRequired[list[EnsembleRecord]]
    secret_noise: NotRequired[bool]


MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Annotated[Manifest, AfterValidator(_check_layout)])
