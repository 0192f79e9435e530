"""Audits of a suite: the code that its cells train with, run on canaries, against the epsilon that their accountant prints.

Beside the canaries a few rounds of the cell's own training are run and watched, see `fedguard.privacy.audit.training`: with its
architecture, clients, protocol and noise, on a small task of which the auditor needs to know nothing but the updates.

A cell's noise, clip, sampling and clients of a session are audited as they are, over a few of its rounds, and held against what
its accountant says of so many. What is added by composition over more rounds is the accountant's theorem, not code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedguard.bench.audits.suites import CellAudit
from fedguard.bench.audits.training import CellLab, training_checks
from fedguard.bench.running.procedures import refusals
from fedguard.config import Plan, PlannedCell
from fedguard.config.algorithms import settings
from fedguard.config.protocol import effective
from fedguard.contracts import Subject
from fedguard.errors import NotAllowed
from fedguard.privacy.audit import audit, check_audit_settings


def audit_suite(
    plan: Plan,
    *,
    method: str = "gdp_split",
    canaries: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    before: Callable[[str], None] = lambda what: None,
) -> list[CellAudit]:
    """Audit every kind of noise in a suite once; see `fedguard.privacy.audit.audit` for the arguments.

    Args:
        before: called with a description of the next step.

    Returns:
        an audit for each kind; none for cells without noise, or that may not run.
    """
    check_audit_settings(method, canaries, confidence, seed)
    alike: dict[str, tuple[PlannedCell, list[str]]] = {}
    for swept, cell in plan.positions:
        if cell.private and not cell.verdict.reasons:
            label = ", ".join(f"{key}: {value}" for key, value in swept.items())
            alike.setdefault(_settings(cell), (cell, []))[1].append(label)
    _leave_out_refused(alike, plan.suite.seeds[0], before)
    found = []
    for number, (cell, labels) in enumerate(alike.values(), 1):
        kind = f"{number} of {len(alike)} kinds of noise"
        before(f"{kind}: rounds of its training")
        training = training_checks(cell, seed, before)
        for subject in subjects(cell, plan.suite.seeds[0]):
            before(f"{kind}: {2 * canaries} canaries in {subject.name}")
            one = audit(subject, method=method, canaries=canaries, confidence=confidence, seed=seed, training=training)
            found.append(CellAudit(cells=tuple(labels), audit=one))
    return found


def _leave_out_refused(
    alike: dict[str, tuple[PlannedCell, list[str]]], seed: int, before: Callable[[str], None]
) -> None:
    """Leave out cells that cannot run on their data or with their model, with the reason.

    Raises:
        NotAllowed: nothing is left.
    """
    refused = refusals([cell for cell, _ in alike.values()], seed)
    for key, (cell, labels) in list(alike.items()):
        if cell.id in refused:
            before(f"left out, since it cannot run: {labels[0]}: {refused[cell.id]}")
            del alike[key]
    if refused and not alike:
        raise NotAllowed(f"nothing to audit may run: {next(iter(refused.values()))}")


def subjects(cell: PlannedCell, seed: int) -> Iterator[Subject]:
    """The subjects of an audit in a cell: one per privacy level, else one."""
    return cell.noise.subjects(cell.in_sessions, CellLab(cell, seed))


def _settings(cell: PlannedCell) -> str:
    """The settings that two cells must share to be audited as one, as text."""
    named = effective(cell), settings(cell.algorithm, cell.training), str(cell.architecture)
    return repr((*named, cell.clients, cell.meeting, cell.data, cell.model))
