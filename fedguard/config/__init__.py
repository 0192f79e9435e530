"""From a suite file to cells.

document.py   YAML with line numbers and without YAML's traps
schema.py     what a suite may say; sections.py, what a cell's settings may
validation.py every message about what they may not
layout.py     the matrix of a suite: one cell per combination
cells.py      a cell, with its identity
targets.py    what a cell evaluates: composed.py, a training of algorithms by name; apps.py, an existing app
"""

from fedguard.config.cells import Cell
from fedguard.config.document import Document, read_document
from fedguard.config.layout import Plan, plan
from fedguard.config.schema import Suite, read_suite

__all__ = ["Cell", "Document", "Plan", "Suite", "plan", "read_document", "read_suite"]
