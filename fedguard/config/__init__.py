"""From a suite file to cells.

document.py   YAML with line numbers and without YAML's traps
schema.py     what a suite may say, and every message about what it may not
cells.py      the matrix, laid out: one cell per combination, with its identity
"""

from fedguard.config.cells import Cell, Plan, plan
from fedguard.config.document import Document, read_document
from fedguard.config.schema import Suite, read_suite

__all__ = ["Cell", "Document", "Plan", "Suite", "plan", "read_document", "read_suite"]
