"""Audits of a suite: the code that its cells train with, run on canaries, against the epsilon that their accountant prints.

Beside the canaries a few rounds of the cell's own training are run and watched, see `fedguard.privacy.audit.training`: with its
architecture, clients, protocol and noise, on a small task of which the auditor needs to know nothing but the updates.

A cell's noise, clip, sampling and clients of a session are audited as they are, over a few of its rounds, and held against what
its accountant says of so many. What is added by composition over more rounds is the accountant's theorem, not code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from fedguard.bench.audit_training import training_checks
from fedguard.bench.trial import dealt
from fedguard.config import Cell, Plan
from fedguard.contracts import (
    DPSGD,
    ClientNoise,
    DistributedNoise,
    Examples,
    LocalPlan,
    RecordNoise,
)
from fedguard.privacy import planned, record
from fedguard.privacy.accounting import Event
from fedguard.privacy.audit import Audit, Subject, audit
from fedguard.privacy.audit.subjects import CentralLevel, RecordLevel, distributed
from fedguard.privacy.central import central
from fedguard.rng import Rng
from fedguard.secagg.encoding import Encoding
from fedguard.tasks import cohort
from fedguard.tasks.models.softmax import Softmax
from fedguard.tasks.network import Network

#: At most so many rounds of noise at the server, and of noise that clients share out, which takes a thousand times as long.
CENTRAL_ROUNDS, SHARED_ROUNDS = 50, 2
#: At most about so many steps of DP-SGD.
STEPS = 50
#: Shared noise is audited on vectors no longer than that, if the clients of a session are not more.
DIM = 256


@dataclass(frozen=True, kw_only=True)
class CellAudit:
    """One audit, and the cells that it speaks for, by what was swept."""

    cells: tuple[str, ...]
    audit: Audit

    def as_dict(self) -> dict[str, Any]:
        return {"cells": list(self.cells), **self.audit.as_dict()}


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
        before: told what is done next.

    Returns:
        an audit for each kind; none for cells without noise, or that may not run.
    """
    alike: dict[Any, tuple[Cell, list[str]]] = {}
    for swept, cell in plan.positions:
        if cell.config.protocol.privacy != "none" and not cell.verdict.reasons:
            label = ", ".join(f"{key}: {value}" for key, value in swept.items())
            alike.setdefault(_settings(cell), (cell, []))[1].append(label)
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


def subjects(cell: Cell, seed: int) -> Iterator[Subject]:
    """What there is to audit in a cell: one for each privacy level, else one."""
    noise, clients, training = cell.config.protocol.privacy, cell.participation, cell.config.training
    if isinstance(noise, ClientNoise):
        mechanism, rounds = central(noise, clients, training.rounds), min(training.rounds, CENTRAL_ROUNDS)
        claim = mechanism.spent(clients, rounds, noise.delta)
        yield CentralLevel(
            mechanism=mechanism,
            clients=clients,
            rounds=rounds,
            claim=claim,
            curve=lambda delta: mechanism.spent(clients, rounds, delta).value,
        )
    elif isinstance(noise, RecordNoise):
        yield from _of_records(cell, noise)
    elif isinstance(noise, DistributedNoise):
        protocol, rounds = cell.config.protocol, min(training.rounds, SHARED_ROUNDS)
        contributors = protocol.session(clients.expected, clients.most).honest
        scale, dim = Encoding(**asdict(protocol.fixed_point)).scale, dealt(cell, seed).dim
        shared = planned.distributed(noise, rounds=training.rounds, contributors=contributors, dim=dim, scale=scale)
        yield distributed(
            shared, contributors=contributors, dim=max(min(dim, DIM), contributors), scale=scale, rounds=rounds
        )


def _of_records(cell: Cell, noise: RecordNoise) -> Iterator[RecordLevel]:
    training, clients = cell.config.training, cell.participation
    steps = record.steps_in_a_round(noise, training)
    rounds = max(1, min(clients.participations(training.rounds), STEPS // steps))
    for number, level in enumerate(record.dp_sgd(noise, training, clients).levels):
        event = record.step_event(noise, level[1], steps * rounds)
        yield RecordLevel(
            name="record-level DP-SGD" + (f", level {number}" if noise.levels else ""),
            train=train,
            batches=_batches,
            plan=replace(training.plan(), private=DPSGD(sample_rate=noise.sample_rate, levels=(level,))),
            rounds=rounds,
            claim=planned.spent([event], noise.delta)[0],
            curve=partial(_spent, event),
        )


def _spent(event: Event, delta: float) -> float:
    return planned.spent([event], delta)[0].value


def train(examples: Examples, model: Tensor, plan: LocalPlan, rng: Rng) -> Tensor:
    """One client's training, float32 ``[d]``, by the cohort that every trial trains with."""
    width = examples.x.shape[1]
    out = torch.zeros(1, len(model))
    cohort.Cohort(_network(width), [examples]).train(model, [0], plan, rng, out)
    return out[0]


def _batches(plan: LocalPlan, size: int, draw: Any) -> cohort.Schedule:
    return cohort.schedule(plan, size, draw)


@lru_cache(maxsize=4)
def _network(width: int) -> Network:
    return Network(Softmax(), (width,), 2, Rng(0))


def _settings(cell: Cell) -> tuple[Any, ...]:
    """What two cells must share to be audited as one."""
    config = cell.config
    return config.protocol, cell.participation, config.training, cell.data, cell.model
