"""The table of faults outside secure aggregation, `faults.txt`: in rules, attacks, the protocol, accounting and the gate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.mutants.planting import Edit, rows


@dataclass(frozen=True)
class Fault:
    """One planted fault.

    Attributes:
        name: in a few words.
        edits: the mutations that make it, all at once.
        near: the quick tests that run first: files or folders, from the root of the checkout.
    """

    name: str
    edits: tuple[Edit, ...]
    near: tuple[str, ...]


_TABLE = Path(__file__).with_name("faults.txt").read_text()
FAULTS = tuple(Fault(name, edits, tuple(facts["near"].split())) for name, facts, edits in rows(_TABLE))
