"""Audits of a suite: the code that its cells train with, run on canaries, against the epsilon that their accountant prints.

Beside the canaries a few rounds of the cell's own training are run and watched, see `fedguard.privacy.audit.training`: with its
architecture, clients, protocol and noise, on a small task of which the auditor needs to know nothing but the updates.

A cell's noise, clip, sampling and clients of a session are audited as they are, over a few of its rounds, and held against what
its accountant says of so many. What is added by composition over more rounds is the accountant's theorem, not code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from fedguard.bench.trial import deal, set_up
from fedguard.config import Cell, Plan
from fedguard.contracts import (
    DPSGD,
    ClientNoise,
    Dataset,
    DistributedNoise,
    Examples,
    LocalPlan,
    Observer,
    Protocol,
    RecordNoise,
    RoundReport,
    Setup,
)
from fedguard.privacy import planned, record
from fedguard.privacy.accounting import Event
from fedguard.privacy.audit import Audit, Check, Subject, audit
from fedguard.privacy.audit.subjects import CentralLevel, RecordLevel, distributed
from fedguard.privacy.audit.training import server_checks, steps_checks, sums_checks
from fedguard.privacy.central import central
from fedguard.registry import registry
from fedguard.rng import Rng
from fedguard.secagg.encoding import Encoding
from fedguard.tasks import cohort
from fedguard.tasks.classification import Classification
from fedguard.tasks.models.softmax import Softmax
from fedguard.tasks.network import Network

#: At most so many rounds of noise at the server, and of noise that clients share out, which takes a thousand times as long.
CENTRAL_ROUNDS, SHARED_ROUNDS = 50, 2
#: At most about so many steps of DP-SGD.
STEPS = 50
#: Shared noise is audited on vectors no longer than that, if the clients of a session are not more.
DIM = 256
#: So many rounds of a training are watched, or more where clients take turns; and so many clients that train by DP-SGD.
WATCHED_AT_SERVER, WATCHED_SUMS, WATCHED_CLIENTS = 24, 3, 4
#: Of the small task that they train on.
SHAPE, CLASSES = (1, 8, 8), 4


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
        before: told what is audited next.

    Returns:
        an audit for each kind; none for cells without noise, or that may not run.
    """
    alike: dict[Any, tuple[Cell, list[str]]] = {}
    for swept, cell in plan.positions:
        if cell.config.protocol.privacy != "none" and not cell.verdict.reasons:
            label = ", ".join(f"{key}: {value}" for key, value in swept.items())
            alike.setdefault(_settings(cell), (cell, []))[1].append(label)
    found = []
    for cell, labels in alike.values():
        before("a few rounds of training")
        training = training_checks(cell, seed)
        for subject in subjects(cell, plan.suite.seeds[0]):
            before(subject.name)
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
        scale, dim = Encoding(**asdict(protocol.fixed_point)).scale, deal(cell, seed)[0].dim
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


def training_checks(cell: Cell, seed: int) -> tuple[Check, ...]:
    """Run a few rounds of a cell's training with nobody hostile, and test the noise of what was seen."""
    noise, clients, training = cell.config.protocol.privacy, cell.participation, cell.config.training
    if isinstance(noise, ClientNoise):
        mechanism = central(noise, clients, training.rounds)
        setup = _small(cell, seed, _examples(cell, seed, mechanism.start().clip))
        return server_checks(_reports(cell, setup, WATCHED_AT_SERVER), mechanism, clients, training)
    if isinstance(noise, DistributedNoise):
        setup = _small(cell, seed, _examples(cell, seed, noise.clip))
        contributors = cell.config.protocol.session(clients.expected, clients.most).honest
        scale = Encoding(**asdict(cell.config.protocol.fixed_point)).scale
        shared = planned.distributed(
            noise, rounds=training.rounds, contributors=contributors, dim=setup.task.dim, scale=scale
        )
        return sums_checks(_reports(cell, setup, WATCHED_SUMS), shared, contributors, scale)
    assert isinstance(noise, RecordNoise)  # the other kinds are above
    return _steps_of_training(cell, noise, seed)


def _steps_of_training(cell: Cell, noise: RecordNoise, seed: int) -> tuple[Check, ...]:
    """Few clients, who take their turns as in the cell, each often enough to come back; their inputs are zeros.

    Then no weight has a gradient. Masks and client transforms come after the noise.
    """
    clients, training = cell.participation, cell.config.training
    few = min(clients.expected, max(WATCHED_CLIENTS, len(noise.parties)))
    turns = replace(clients, total=few * clients.separation, per_round=few)
    setup = replace(
        _small(cell, seed, [Examples(torch.zeros(2, *SHAPE), torch.arange(2))] * turns.total),
        participation=turns,
        training=replace(training, worker_momentum=0.0),
        protocol=Protocol(privacy=noise),
    )
    often = 4 if record.steps_in_a_round(noise, training) <= STEPS else 2
    reports = _reports(cell, setup, max(often, clients.separation + 1))
    private = replace(training.plan(), private=record.dp_sgd(noise, training, clients))
    return steps_checks(reports, private, still=math.prod(SHAPE) * CLASSES)


def _reports(cell: Cell, setup: Setup, rounds: int) -> list[RoundReport]:
    return list(islice(cell.architecture.run(setup), rounds))


def _small(cell: Cell, seed: int, parts: Sequence[Examples]) -> Setup:
    """The set-up of a trial, watched in every round; without an attack, and with the mean for a rule, which comes after."""
    rest = Examples(torch.zeros(CLASSES, *SHAPE), torch.arange(CLASSES))
    dataset, model = Dataset(rest, rest, CLASSES, (0.0, 1.0)), _FromZero()
    task = Classification(dataset, tuple(parts), None, model, Network(model, SHAPE, CLASSES, Rng(0)))
    return replace(
        set_up(cell, seed, task),
        pipeline=registry().pipeline("mean"),
        attack=None,
        hostile=frozenset(),
        told=0,
        evaluate_every=cell.config.training.rounds,
        observer=Observer(None),
    )


def _examples(cell: Cell, seed: int, clip: float) -> list[Examples]:
    """Two for each client, so long that its first step is about a tenth of the clip, or a hundred times as long."""
    draw, found = Rng(seed).child("audit", "examples").torch(), []
    for client in range(cell.participation.total):
        length = clip / cell.config.training.plan().lr * (100 if client % 2 else 0.1)
        x = torch.randn(2, *SHAPE, generator=draw) * length / math.prod(SHAPE) ** 0.5
        found.append(Examples(x, torch.arange(2) + client % (CLASSES - 1)))
    return found


@dataclass(frozen=True, kw_only=True)
class _FromZero(Softmax):
    """Softmax regression that starts at zero, where float32 shows steps of any size."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        module = super().build(shape, classes)
        for parameter in module.parameters():
            nn.init.zeros_(parameter)
        return module


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
