"""Which runs of a store a run can be compared with, and which comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedguard.bench.records.schema import Record
from fedguard.bench.records.store import RunFolder, runs
from fedguard.bench.results.differences import apart
from fedguard.bench.results.run import Run
from fedguard.errors import StoreError, escape_control

#: Keys in which two runs of the same matrix may differ and still be compared by default
_KEYS = 3

#: Why a run cannot be compared if it cannot even be opened
UNREADABLE = "its manifest cannot be read"

#: A cell's place in the matrix
Place = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Partner:
    """Another run of the store.

    Attributes:
        rank: 0 for the same suite with other code, 1 for the same matrix with at most three keys changed, 2 for an earlier run
            of the suite of this name; None if it is not comparable.
        why: the reason, in words.
    """

    name: str
    rank: int | None
    why: str


def partners(run: Run) -> list[Partner]:
    """The other runs of its store: the best partner first, of equal ones the latest; incomparable ones last."""
    others = (one for one in runs(run.folder.path.parent) if one.path.resolve() != run.folder.path.resolve())
    return sorted((_judge(run, one) for one in others), key=lambda one: 3 if one.rank is None else one.rank)


def _judge(run: Run, folder: RunFolder) -> Partner:
    name = escape_control(folder.path.name)
    try:
        return Partner(name, *_rank(run, Run(folder, folder.manifest())))
    except StoreError:
        return Partner(name, None, UNREADABLE)


def _rank(run: Run, other: Run) -> tuple[int | None, str]:
    here, there = _cells(run), _cells(other)
    common = [place for place in here if place in there]
    pair = next((both for place in common if (both := _records(run, here[place], other, there[place]))), None)
    if pair is None:
        return None, f"no position of the matrix {'with a record in both' if common else 'in common'}"
    whole = len(common) == len(here) == len(there)
    keys = [key for key, _, _ in apart(pair[0]["config"], pair[1]["config"])]
    if here == there and pair[0]["environment"].get("code") != pair[1]["environment"].get("code"):
        return 0, "the same suite with other code"
    if whole and len(keys) <= _KEYS:
        return 1, f"the same matrix, {', '.join(keys) or 'nothing'} changed"
    part = (
        f"the same matrix, {len(keys)} keys changed"
        if whole
        else f"{len(common)} positions in common, {len(here)} here and {len(there)} there"
    )
    if other.manifest["name"] == run.manifest["name"] and other.manifest["started"] <= run.manifest["started"]:
        return 2, f"an earlier run of the suite {other.manifest['name']}: {part}"
    return None, part


def _cells(run: Run) -> dict[Place, str]:
    """The cell of each position."""
    return {_place(position["swept"]): position["cell"] for position in run.manifest["positions"]}


def _place(swept: Mapping[str, str]) -> Place:
    return tuple(sorted(swept.items()))


def _records(one: Run, here: str, two: Run, there: str) -> tuple[Record, Record] | None:
    """The records of a position, read one by one: a whole store is too much to read."""
    first = one.folder.read(here, one.seeds[0], lambda _: None)
    second = two.folder.read(there, two.seeds[0], lambda _: None) if first else None
    return (first, second) if first and second else None
