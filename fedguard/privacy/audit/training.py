"""Tests of the noise of a whole training: residuals of rounds watched by an auditor who sees everything.

Canaries run a mechanism by itself, on random streams of the auditor. These tests read the rounds of a real training: from
which stream the noise of a round, client or step came, who was drawn, and whether the mechanism was called at all.

    server     expected * aggregate - sum_i clip(x_i)          also that the model moves by the aggregate and by nothing else
    DP-SGD     the update of a client in coordinates in which none of its examples has a gradient

Noise that clients share is in `fedguard.privacy.audit.shares`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts import Cell, LocalPlan, Participation, RoundObservation, RoundReport
from fedguard.contracts.audit import Check, Integers, Reals, Transcript
from fedguard.privacy.audit.residuals import residual_checks
from fedguard.privacy.audit.subjects import count_residual, independent, sum_noise
from fedguard.privacy.central import AdaptiveClip, CentralDP

#: The model moves by the aggregate up to the rounding of float32, over the step.
ROUNDING = 1e-3


def server_checks(
    reports: Sequence[RoundReport],
    mechanism: CentralDP,
    cell: Cell,
    *,
    layers: tuple[int, ...] = (),
    other: Sequence[RoundReport] = (),
) -> tuple[Check, ...]:
    """Checks of noise at the server: sums, counts behind an adaptive clip, cohorts, and steps of the model.

    Args:
        layers: sizes of the layers of the model, in order.
        other: the first rounds of a training with the same seed and other data.
    """
    expected, clients = mechanism.expected, cell.clients
    releases, truth, clips = _sums(reports, mechanism, expected)
    rounds, noise = list(map(require_watched_round, reports)), sum_noise(mechanism)
    elsewhere = None
    if other:
        there, of_there, _ = _sums(other, mechanism, expected)
        apart = (releases - truth)[: len(other)] - (there - of_there)
        elsewhere = float(np.abs(apart).max()) / noise
    seen = Transcript(
        releases=releases,
        truth=truth,
        noise=noise,
        layers=layers,
        elsewhere=elsewhere,
        counts=_counts(rounds, clips, mechanism, expected),
        drawn=_cohort_matrix(reports, clients.total)
        if clients.scheme in ("fixed", "poisson") and cell.meeting is None
        else None,
        rate=expected / clients.total,
        fixed=clients.scheme == "fixed",
    )
    turns = (_turns(reports, clients),) if clients.scheme == "cyclic" else ()
    return prefix_checks((*residual_checks(seen), *turns, _moves(rounds, cell)))


def steps_checks(
    reports: Sequence[RoundReport],
    plan: LocalPlan,
    still: Integers,
    *,
    layers: tuple[int, ...] = (),
    other: Sequence[RoundReport] = (),
) -> tuple[Check, ...]:
    """Checks of DP-SGD in the clients: every client in every round has its own noise, of the claimed size.

    Args:
        plan: local training of each client.
        still: coordinates in which no example has a gradient.
        layers, other: as for `server_checks`.
    """
    releases, clients = _steps(reports, plan, still)
    there, _ = _steps(other, plan, still) if other else (releases, clients)
    seen = Transcript(
        releases=releases,
        truth=np.zeros_like(releases),
        noise=1.0,
        positions=still,
        layers=layers,
        clients=clients,
        elsewhere=float(np.abs(releases[: len(there)] - there).max()) if other else None,
    )
    return prefix_checks(residual_checks(seen))


def _sums(reports: Sequence[RoundReport], mechanism: CentralDP, expected: int) -> tuple[Reals, Reals, list[float]]:
    """float64 ``[T, d]`` in clips: releases, and releases without noise; and the clip of each round."""
    # A server that clips nothing has no clip to report; it is held against the one that it should start with.
    clips = [mechanism.start().clip if report.clip is None else report.clip for report in reports]
    released, truth = [], []
    for one, clip in zip(map(require_watched_round, reports), clips, strict=True):
        released.append(_or_nothing(one).numpy() * expected / clip)
        truth.append((weights(one) @ clip_updates(one.sent.updates, clip)).numpy() / clip)
    return independent(np.stack(released), mechanism.bands), independent(np.stack(truth), mechanism.bands), clips


def _steps(reports: Sequence[RoundReport], plan: LocalPlan, still: Integers) -> tuple[Reals, Integers]:
    """float64 ``[k, d]``: updates over their claimed noise; int64 ``[k]``: the client of each."""
    private, divisor = plan.private, plan.batch_size
    assert private is not None and divisor is not None  # else the training refuses
    steps = plan.private_steps(private.sample_rate)
    # A step's noise goes on by momentum: in s steps the k-th is counted 1 + m + ... + m^(s - k) times.
    times = np.cumsum(plan.momentum ** np.arange(steps))
    scale = plan.lr / divisor * math.sqrt(float((times**2).sum()))
    rows, clients = [], []
    for one in map(require_watched_round, reports):
        for client, weight, update in zip(one.sent.senders, weights(one), one.sent.updates, strict=True):
            clip, multiplier = private.level(client)
            rows.append(update.double().numpy()[still] / (clip * multiplier * scale * float(weight)))
            clients.append(client)
    return np.stack(rows), np.array(clients, np.int64)


def _counts(
    rounds: Sequence[RoundObservation], clips: Sequence[float], mechanism: CentralDP, expected: int
) -> Reals | None:
    """Noise of each count over its claimed size, read off the next round's clip; so not of the last count."""
    if not isinstance(mechanism.clip, AdaptiveClip):
        return None
    return np.array(
        [
            count_residual(mechanism.clip, before, after, one.sent.updates, expected) / mechanism.bit_noise
            for one, before, after in zip(rounds, clips, clips[1:], strict=False)
        ]
    )


def _cohort_matrix(reports: Sequence[RoundReport], total: int) -> NDArray[np.bool_]:
    """bool ``[T, total]``: the clients selected in each round."""
    drawn = np.zeros((len(reports), total), bool)
    for row, report in zip(drawn, reports, strict=True):
        row[list(report.chosen)] = True
    return drawn


def _turns(reports: Sequence[RoundReport], clients: Participation) -> Check:
    """With public turns, no client takes part again before its next turn."""
    last: dict[int, int] = {}
    gaps = []
    for report in reports:
        gaps += [report.round - last[client] for client in report.chosen if client in last]
        last.update(dict.fromkeys(report.chosen, report.round))
    soonest = min(gaps, default=clients.separation)
    return Check(
        name="turns",
        p_value=float(soonest >= clients.separation),
        words=f"a client came back after {soonest} rounds; expected {clients.separation} or more",
    )


def _moves(rounds: Sequence[RoundObservation], cell: Cell) -> Check:
    """The model moves by the noisy aggregate, with the server's momentum, and by nothing else."""
    velocity, off = torch.zeros_like(rounds[0].sent.model).double(), 0.0
    for one in rounds:
        velocity = cell.training.server_momentum * velocity + _or_nothing(one)
        step = cell.server_step * one.gain * velocity
        error = (one.after.double() - one.sent.model.double() - step).norm()
        off = max(off, float(error / (step.norm() + one.after.double().norm() * 1e-4)))
    return Check(
        name="model",
        p_value=float(off <= ROUNDING),
        words=f"the model moves by the noisy aggregate up to {off:.1g} of its length",
    )


def _or_nothing(one: RoundObservation) -> Tensor:
    """float64 ``[d]``: the aggregate; zeros if there was none, which the tests see as missing noise."""
    return torch.zeros_like(one.sent.model).double() if one.aggregate is None else one.aggregate.double()


def weights(one: RoundObservation) -> Tensor:
    """float64 ``[n]``: the weight of each update by its staleness."""
    return torch.tensor(
        [training.scale for training in one.sent.trainings] or [1.0] * len(one.sent.senders), dtype=torch.float64
    )


def clip_updates(updates: Tensor, clip: float) -> Tensor:
    """Clipped updates, float64 ``[n, d]``, by the auditor's own arithmetic."""
    rows = updates.double()
    clipped: Tensor = rows * (clip / rows.norm(dim=1, keepdim=True).clamp(min=1e-300)).clamp(max=1)
    return clipped


def require_watched_round(report: RoundReport) -> RoundObservation:
    (one,) = report.watched  # the auditor watches every aggregate
    return one


def prefix_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    return tuple(replace(check, name=f"training: {check.name}") for check in checks)
