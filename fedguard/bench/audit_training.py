"""A few rounds of a cell's own training, watched: with its architecture, clients, protocol and noise, on a small task.

The task is softmax regression from zero, of which the auditor needs to know nothing but the updates; nobody is malicious.
The work is bounded whatever the suite asks for: see the constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import nn

from fedguard.bench.trial import dealt, set_up
from fedguard.config import Cell
from fedguard.contracts import (
    ClientNoise,
    Dataset,
    DistributedNoise,
    Examples,
    LocalPlan,
    Observer,
    Participation,
    Protocol,
    RecordNoise,
    RoundReport,
    Setup,
)
from fedguard.privacy import planned, record
from fedguard.privacy.audit import Check
from fedguard.privacy.audit.contract import Transcript
from fedguard.privacy.audit.residuals import residual_checks
from fedguard.privacy.audit.shares import Shares, shares_checks
from fedguard.privacy.audit.subjects import LONG
from fedguard.privacy.audit.training import server_checks, steps_checks
from fedguard.privacy.central import central
from fedguard.registry import registry
from fedguard.rng import Rng
from fedguard.secagg.encoding import Encoding
from fedguard.tasks.classification import Classification
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.models.softmax import Softmax
from fedguard.tasks.network import Network

#: So many rounds are watched where the server adds the noise, and where clients share it out.
WATCHED_AT_SERVER, WATCHED_SUMS = 24, 3
#: DP-SGD is watched in all clients, as long as that takes no more steps; or else in fewer clients.
WATCHED_STEPS = 4000
#: Each comes twice, or four times where they are no more than that.
FEW = 10
#: The noise in the layers of the cell's own model is told from so many steps, unless it has more parameters.
SINGLE_STEPS, LARGEST_MODEL = 4, 1_000_000
#: So many rounds are run again on other data.
AGAIN = 2
#: Of the small task.
SHAPE, CLASSES = (1, 8, 8), 4


#: Is told what is done next.
Progress = Callable[[str], None]


def silent(what: str) -> None:
    """Progress that nobody wants to hear."""


def training_checks(cell: Cell, seed: int, before: Progress = silent) -> tuple[Check, ...]:
    """Run a few rounds of a cell's training with nobody malicious, and test the noise of what was seen."""
    noise, clients, training = cell.config.protocol.privacy, cell.participation, cell.config.training
    if isinstance(noise, ClientNoise):
        mechanism = central(noise, clients, training.rounds)
        setup, other = (_small(cell, seed, _examples(cell, seed, mechanism.start().clip, now)) for now in (True, False))
        return server_checks(
            _reports(cell, setup, WATCHED_AT_SERVER),
            mechanism,
            clients,
            training,
            layers=setup.task.layers,
            other=_reports(cell, other, AGAIN),
        )
    if isinstance(noise, DistributedNoise):
        return _shares_of_training(cell, noise, seed, before)
    assert isinstance(noise, RecordNoise)  # the other kinds are above
    return _steps_of_training(cell, noise, seed, before)


def _shares_of_training(cell: Cell, noise: DistributedNoise, seed: int, before: Progress) -> tuple[Check, ...]:
    protocol, rounds = cell.config.protocol, cell.config.training.rounds
    setup, other = (_small(cell, seed, _examples(cell, seed, noise.clip, now)) for now in (True, False))
    contributors = protocol.session(cell.participation.expected, cell.participation.most).honest
    scale, dim = Encoding(**asdict(protocol.fixed_point)).scale, setup.task.dim
    plan = planned.distributed(noise, rounds=rounds, contributors=contributors, dim=dim, scale=scale)
    shares = Shares(plan=plan, contributors=contributors, scale=scale, layers=setup.task.layers)
    expected = cell.participation.expected
    before(f"{WATCHED_SUMS} rounds of the protocol among {expected} clients")
    reports = _reports(cell, setup, WATCHED_SUMS)
    before(f"a round of the protocol among {expected} clients with other data")
    return shares_checks(reports, shares, _reports(cell, other, 1))


def _steps_of_training(cell: Cell, noise: RecordNoise, seed: int, before: Progress) -> tuple[Check, ...]:
    """All clients, as far as the bound on the work allows, each often enough to come back; they take turns as in the cell.

    Their examples have a single input other than zero, and that so long that a clipped gradient is nothing elsewhere: neither
    in the other weights nor in the biases. Masks and client transforms come after the noise.
    """
    clients, training = cell.participation, cell.config.training
    turns, rounds = _everybody(clients, record.steps_in_a_round(noise, training), len(noise.parties))
    setup, other = (
        replace(
            _small(cell, seed, [_one_input(label)] * turns.total),
            participation=turns,
            training=replace(training, worker_momentum=0.0),
            protocol=Protocol(privacy=noise),
        )
        for label in (0, 1)
    )
    private = replace(training.plan(), private=record.dp_sgd(noise, training, clients))
    still = np.flatnonzero(np.arange(setup.task.dim) % math.prod(SHAPE) != 0)
    weights = math.prod(SHAPE) * CLASSES
    still = np.concatenate([still[still < weights], np.arange(weights, setup.task.dim)])
    before(f"{rounds} rounds of DP-SGD in {turns.total} of {clients.total} clients")
    reports = _reports(cell, setup, rounds)
    found = steps_checks(reports, private, still, layers=setup.task.layers, other=_reports(cell, other, 1))
    if turns.total < clients.total:
        watched = f"(of {turns.total} of {clients.total} clients)"
        found = tuple(replace(check, words=f"{check.words} {watched}") for check in found)
    return (*found, *_layers_of_model(cell, private, seed))


def _layers_of_model(cell: Cell, plan: LocalPlan, seed: int) -> tuple[Check, ...]:
    """Single steps of the cell's own model, in a client without examples: noise alone, in every layer."""
    assert plan.private is not None
    task, (clip, multiplier) = dealt(cell, seed), plan.private.level(0)
    if task.dim > LARGEST_MODEL:
        return ()
    nobody = Examples(*(tensor[:0] for tensor in (task.examples(0).x, task.examples(0).y)))
    one, client = (
        replace(plan, steps=1, epochs=None, lr=1.0, momentum=0.0, batch_size=1),
        Cohort(task.network, [nobody]),
    )
    moved = torch.zeros(SINGLE_STEPS, 1, task.dim)
    for number, out in enumerate(moved):
        client.train(torch.zeros(task.dim), [0], one, Rng(seed).child("audit", "model", number), out)
    noise = moved[:, 0].double().numpy()
    seen = Transcript(releases=noise, truth=0 * noise, noise=clip * multiplier, layers=task.layers)
    checks = [check for check in residual_checks(seen) if check.name in ("noise", "places", "law", "rounds")]
    return tuple(replace(check, name=f"model: {check.name}") for check in checks)


def _everybody(clients: Participation, steps: int, levels: int) -> tuple[Participation, int]:
    """Who is watched, and in how many rounds: each client twice, or with turns until the first has come back."""
    turns = clients.separation
    rounds = turns + 1 if turns > 1 else 4 if clients.total <= FEW else 2
    together = clients.total // turns
    most = max(levels, 4, WATCHED_STEPS // (rounds * steps))
    per_round = min(together, most)
    return replace(clients, total=per_round * turns, per_round=per_round, schedule=()), rounds


def _one_input(label: int) -> Examples:
    """Two examples of their first input alone."""
    x = torch.zeros(2, *SHAPE)
    x.view(2, -1)[:, 0] = LONG
    return Examples(x, torch.tensor([label, label + 1]))


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


def _examples(cell: Cell, seed: int, clip: float, now: bool) -> list[Examples]:
    """Two for each client, so long that its first step is about a tenth of the clip, or a hundred times as long.

    Args:
        now: whether the data are the first; else those with short steps have others.
    """
    draw, found = Rng(seed).child("audit", "examples").torch(), []
    for client in range(cell.participation.total):
        length = clip / cell.config.training.plan().lr * (100 if client % 2 else 0.1)
        x, other = torch.randn(2, 2, *SHAPE, generator=draw) * length / math.prod(SHAPE) ** 0.5
        found.append(Examples(x if now or client % 2 else other, torch.arange(2) + client % (CLASSES - 1)))
    return found


@dataclass(frozen=True, kw_only=True)
class _FromZero(Softmax):
    """Softmax regression that starts at zero, where float32 shows steps of any size."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        module = super().build(shape, classes)
        for parameter in module.parameters():
            nn.init.zeros_(parameter)
        return module
