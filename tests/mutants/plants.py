"""The table of weaknesses planted in secure aggregation, `plants.txt`."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.planting import Plant, rows

_TABLE = Path(__file__).with_name("plants.txt").read_text()
PLANTS = tuple(Plant(name, facts["because"], edits, facts["first"]) for name, facts, edits in rows(_TABLE))
