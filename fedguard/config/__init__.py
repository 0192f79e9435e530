"""From a suite file to cells.

document.py   YAML with line numbers and without YAML's traps
renaming.py   names of earlier versions in it
schema.py     what a suite may say; sections.py, what a cell's settings may
validation.py every message about what they may not
layout.py     the matrix of a suite: one cell per combination
cells.py      a cell, with its identity
algorithms.py the algorithm that a training names; protocol.py, whether a protocol can run with this number of clients
composed.py   a cell that trains algorithms by name; apps.py, a cell with an existing app, and app_section.py, its section
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedguard.lazy import lazy_names

if TYPE_CHECKING:
    from fedguard.config.cells import PlannedCell
    from fedguard.config.document import Document, read_document
    from fedguard.config.layout import Plan, build_cell, plan
    from fedguard.config.schema import Suite, read_suite
else:
    __getattr__ = lazy_names(__name__)

__all__ = ["Document", "Plan", "PlannedCell", "Suite", "build_cell", "plan", "read_document", "read_suite"]
