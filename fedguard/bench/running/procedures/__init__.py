"""Procedures for each kind of cell: the one table that the bench uses.

contract.py   what a procedure is
composed.py   a training that FedGuard composes, in the worker's own process
app.py        a third-party app, in separate processes
"""

from __future__ import annotations

from collections.abc import Iterable

from fedguard.bench.running.limit import TrialTimeout, at_most
from fedguard.bench.running.procedures.app import AppProcedure
from fedguard.bench.running.procedures.composed import ComposedProcedure
from fedguard.bench.running.procedures.contract import Procedure
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell
from fedguard.config.apps import AppCell
from fedguard.config.composed import ComposedCell

PROCEDURES: dict[type[PlannedCell], Procedure] = {ComposedCell: ComposedProcedure(), AppCell: AppProcedure()}


def procedure(cell: PlannedCell) -> Procedure:
    """How a cell is tried."""
    return PROCEDURES[type(cell)]


def refusals(cells: Iterable[PlannedCell], seed: int, timeout: float | None = None) -> dict[str, str]:
    """The reason by cell id why a cell cannot run with this seed, as far as is known; cells that can run are left out.

    Args:
        timeout: seconds for each cell. One that takes longer, and others with its attack, are left to their trials, whose
            worker can be ended.
    """
    found, late, bench = dict[str, str](), set[str](), Workbench()
    for cell in cells:
        if str(cell.attack) in late:
            continue
        how = procedure(cell)
        try:
            with at_most(timeout if how.here else None):
                reason = how.why_not(cell, seed, bench)
        except TrialTimeout:
            late.add(str(cell.attack))
            continue
        if reason is not None:
            found[cell.id] = reason
    bench.apps.close()
    return found
