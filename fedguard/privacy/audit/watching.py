"""A few watched rounds of a cell's own training: data for its clients, and tests of its noise.

The task is softmax regression from zero; the auditor needs only its updates, and nobody is malicious. The constants below bound
the work for any suite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from fedguard.contracts import Cell, Check, Examples, Lab, LocalPlan, Participation
from fedguard.contracts.audit import CLASSES, SHAPE, Transcript
from fedguard.privacy.audit.residuals import residual_checks
from fedguard.privacy.audit.shares import NoiseAllocation, shares_checks
from fedguard.privacy.audit.subjects import LONG
from fedguard.privacy.audit.training import server_checks, steps_checks
from fedguard.privacy.central import CentralDP
from fedguard.rng import Rng

#: Watched rounds if the server adds the noise, and if clients share it.
WATCHED_AT_SERVER, WATCHED_SUMS = 24, 3
#: Most steps of watched DP-SGD; if all clients would take more, fewer clients are watched.
WATCHED_STEPS = 4000
#: Each client takes part twice, or four times if there are at most this many clients.
FEW = 10
#: Steps that test the noise in the layers of the cell's own model, and the most parameters of a tested model.
SINGLE_STEPS, LARGEST_MODEL = 4, 1_000_000
#: These examples of two dozen are left out, one at a time; the first is the largest.
LEFT_OUT = (0, 7, 23)
#: Rounds that are repeated on other data.
AGAIN = 2


def audit_server_noise(lab: Lab, cell: Cell, mechanism: CentralDP) -> tuple[Check, ...]:
    """Audit noise that a trusted server adds."""
    first, others = (_examples(lab, cell, mechanism.start().clip, now) for now in (True, False))
    task, reports = lab.watch(first, WATCHED_AT_SERVER)
    return server_checks(
        reports,
        mechanism,
        cell,
        layers=task.layers,
        other=lab.watch(others, AGAIN)[1],
    )


def audit_noise_shares(
    lab: Lab, cell: Cell, clip: float, shares: Callable[[int, tuple[int, ...]], NoiseAllocation]
) -> tuple[Check, ...]:
    """Audit noise that clients share.

    Args:
        shares: number of parameters and sizes of layers -> the noise that each client should add.
    """
    first, others = (_examples(lab, cell, clip, now) for now in (True, False))
    expected = cell.clients.expected
    lab.before(f"{WATCHED_SUMS} rounds of the protocol among {expected} clients")
    task, reports = lab.watch(first, WATCHED_SUMS)
    lab.before(f"a round of the protocol among {expected} clients with other data")
    return shares_checks(reports, shares(task.dim, task.layers), lab.watch(others, 1)[1])


def audit_local_steps(lab: Lab, cell: Cell, plan: LocalPlan, steps: int, levels: int) -> tuple[Check, ...]:
    """Audit DP-SGD in as many clients as the bound on the work allows, each at least twice, with the turns of the cell.

    Examples have a single non-zero input, so large that a clipped gradient vanishes elsewhere: in the other weights and in the
    biases. Masks and client transforms come after the noise.

    Args:
        plan: local training of each client.
        steps: local steps in a round.
        levels: number of privacy levels.
    """
    clients = cell.clients
    turns, rounds = _everybody(clients, steps, levels)
    lab.before(f"{rounds} rounds of DP-SGD in {turns.total} of {clients.total} clients")
    if cell.meeting is not None:  # as many aggregates as hold the updates of these rounds
        rounds = math.ceil(rounds * turns.expected / cell.meeting.updates)
    first, others = ([_one_input(label)] * turns.total for label in (0, 1))
    task, reports = lab.watch(first, rounds, turns)
    still = np.flatnonzero(np.arange(task.dim) % math.prod(SHAPE) != 0)
    weights = math.prod(SHAPE) * CLASSES
    still = np.concatenate([still[still < weights], np.arange(weights, task.dim)])
    found = steps_checks(reports, plan, still, layers=task.layers, other=lab.watch(others, 1, turns)[1])
    if turns.total < clients.total:
        watched = f"(of {turns.total} of {clients.total} clients)"
        found = tuple(replace(check, words=f"{check.words} {watched}") for check in found)
    return (*found, *_layers_of_model(lab, plan))


def _layers_of_model(lab: Lab, plan: LocalPlan) -> tuple[Check, ...]:
    """Single steps of the cell's own model: noise alone in a client without examples, and the effect of one more example."""
    assert plan.private is not None
    clip, multiplier = plan.private.level(0)
    if lab.task.dim > LARGEST_MODEL:
        return ()
    noise = lab.alone(replace(plan, steps=1, epochs=None, lr=1.0, momentum=0.0, batch_size=1), SINGLE_STEPS)
    seen = Transcript(releases=noise, truth=0 * noise, noise=clip * multiplier, layers=lab.task.layers)
    checks = [check for check in residual_checks(seen) if check.name in ("noise", "places", "law", "rounds")]
    return tuple(replace(check, name=f"model: {check.name}") for check in (*checks, _one_more(lab, plan)))


def _one_more(lab: Lab, plan: LocalPlan) -> Check:
    """One more example moves the clipped sum of the cell's own model by at most the clip, whatever the other examples are.

    The same step runs with and without the example, among similar and dissimilar examples, at the first model and away from it.
    """
    assert plan.private is not None
    (clip, _), furthest = plan.private.level(0), 0.0
    whole = _draw_skewed_examples(lab)
    rows = torch.arange(len(whole))
    parts = [whole, *(whole[rows[rows != left_out]] for left_out in LEFT_OUT)]
    private = replace(plan.private, sample_rate=1.0, levels=((clip, 1e-3),))
    step = replace(plan, steps=1, epochs=None, lr=1.0, momentum=0.0, batch_size=1, private=private)
    first = lab.task.initial_model(Rng(lab.seed))
    for spread in (0.0, 1.0):
        away = torch.randn(len(first), generator=Rng(lab.seed).child("audit", "away").torch())
        moved = lab.compute_updates(parts, first + spread * float(first.std()) * away, step)
        furthest = max(furthest, float(np.linalg.norm(moved[1:] - moved[0], axis=1).max()) / clip)
    return Check(
        name="examples",
        p_value=float(furthest <= 1 + 1e-3),  # rounding
        words=f"one example more moves the clipped sum by up to {furthest:.3g} clips; expected 1 at most",
    )


def _draw_skewed_examples(lab: Lab) -> Examples:
    """Two dozen examples of the cell's shape, the first far larger than the others."""
    draw, (low, high) = Rng(lab.seed).child("audit", "lopsided").torch(), lab.task.value_range
    x = low + (high - low) * torch.rand(24, *lab.task.shape, generator=draw)
    x[0] = high + 100 * (high - low) * torch.rand(lab.task.shape, generator=draw)
    if lab.tokens:
        x = x.round().clamp(low, high)
    return Examples(x, torch.arange(24) % lab.task.classes)


def _everybody(clients: Participation, steps: int, levels: int) -> tuple[Participation, int]:
    """Watched clients and number of rounds: each client twice, or with turns until the first client takes part again."""
    turns = clients.separation
    rounds = turns + 1 if turns > 1 else 4 if clients.total <= FEW else 2
    together = clients.total // turns
    most = max(levels, 4, WATCHED_STEPS // (rounds * steps))
    per_round = min(together, most)
    return replace(clients, total=per_round * turns, per_round=per_round, schedule=()), rounds


def _one_input(label: int) -> Examples:
    """Two examples in which only the first input is not zero."""
    x = torch.zeros(2, *SHAPE)
    x.view(2, -1)[:, 0] = LONG
    return Examples(x, torch.tensor([label, label + 1]))


def _examples(lab: Lab, cell: Cell, clip: float, now: bool) -> list[Examples]:
    """Two examples for each client, of a size at which its first step is about a tenth of the clip, or a hundred clips.

    Args:
        now: True for the first data; else clients with short steps have other data.
    """
    draw, found = Rng(lab.seed).child("audit", "examples").torch(), []
    for client in range(cell.clients.total):
        length = clip / cell.plan.lr * (100 if client % 2 else 0.1)
        x, other = torch.randn(2, 2, *SHAPE, generator=draw) * length / math.prod(SHAPE) ** 0.5
        found.append(Examples(x if now or client % 2 else other, torch.arange(2) + client % (CLASSES - 1)))
    return found
