"""Tests of the noise that clients share, in each sum and in the input of each client.

    sums      len(behind) * row - sum_(i behind) clip(x_i)        of each sum that the server opened
    clients   input_i - clip(x_i)                                 of each client in each round, as it entered its session

A sum of many clients reveals little about the noise of one. So the noise of each client is tested too, and that each sum is
exactly the sum of its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import RoundReport
from fedguard.contracts.audit import Check, Reals, Transcript
from fedguard.privacy.audit.integers import FINE
from fedguard.privacy.audit.residuals import residual_checks
from fedguard.privacy.audit.training import clip_updates, prefix_checks, require_watched_round
from fedguard.privacy.distributed import DistributedDP


@dataclass(frozen=True, kw_only=True)
class NoiseAllocation:
    """The noise that each client should add.

    Args:
        plan: the clip, and the noise that clients share.
        contributors: number of clients that share it.
        scale: S, ring units per unit of the input.
        layers: sizes of the layers of the model, in order.
    """

    plan: DistributedDP
    contributors: int
    scale: float
    layers: tuple[int, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether the grid is so fine that the noise of one client looks Gaussian."""
        return self.each * self.scale > FINE

    @property
    def each(self) -> float:
        """Standard deviation of one client's noise."""
        return self.plan.noise_multiplier * self.plan.clip / math.sqrt(self.contributors)

    def noise(self, inputs: Tensor) -> float:
        """Standard deviation of the noise in the sum of clipped inputs (float64 ``[n, d]``), including their rounding."""
        # Stochastic rounding of a fraction p adds the variance p (1 - p), which counts where the grid is coarse.
        part = (inputs * self.scale) % 1
        rounding = float((part * (1 - part)).sum(0).mean()) / self.scale**2
        return math.sqrt(len(inputs) * self.each**2 + rounding)


def shares_checks(
    reports: Sequence[RoundReport], shares: NoiseAllocation, other: Sequence[RoundReport] = ()
) -> tuple[Check, ...]:
    """Checks of all sums, and of the inputs of all clients.

    Args:
        other: the first round of a training with the same seed, in which some clients have other data. Their updates are
            shorter than the clip, so that rounding, which may retry, takes equally many draws.
    """
    sums, inputs = _of_sums(reports, shares), _of_clients(reports, shares, other)
    if sums is None or inputs is None:
        return (Check(name="training: noise", p_value=1.0, words="no sum came about, so nothing can be told"),)
    of_clients = [
        check for check in residual_checks(inputs) if check.name in ("noise", "places", "law", "rounds", "data")
    ]
    each = [
        Check(name=f"training: clients: {check.name}", p_value=check.p_value, words=check.words) for check in of_clients
    ]
    return (*prefix_checks((*residual_checks(sums), _whole(reports, shares))), *each)


def _of_sums(reports: Sequence[RoundReport], shares: NoiseAllocation) -> Transcript | None:
    releases, truth = [], []
    for one in map(require_watched_round, reports):
        for row, behind in zip(one.rows, one.behind, strict=True):
            inputs = clip_updates(
                one.sent.updates[[one.sent.senders.index(client) for client in behind]], shares.plan.clip
            )
            noise = shares.noise(inputs)
            releases.append(row.double().numpy() * len(behind) / noise)
            truth.append(inputs.sum(0).numpy() / noise)
    if not releases:
        return None
    return Transcript(
        releases=np.stack(releases), truth=np.stack(truth), noise=1.0, gaussian=shares.fine, layers=shares.layers
    )


def _of_clients(
    reports: Sequence[RoundReport], shares: NoiseAllocation, other: Sequence[RoundReport]
) -> Transcript | None:
    rows = {(number, client): row for number, one in enumerate(reports) for client, row in _own(one, shares).items()}
    if not rows:
        return None
    there = {(number, client): row for number, one in enumerate(other) for client, row in _own(one, shares).items()}
    # A rounding up in place of one down is no noise.
    grain = 1.0 / (shares.each * shares.scale)
    apart = [float(np.abs(rows[key] - there[key]).max()) - grain for key in rows.keys() & there.keys()]
    releases = np.stack(list(rows.values()))
    return Transcript(
        releases=releases,
        truth=np.zeros_like(releases),
        noise=1.0,
        gaussian=shares.fine,
        layers=shares.layers,
        clients=np.array([client for _, client in rows], np.int64),
        elsewhere=max(0.0, *apart) if apart else None,
    )


def _own(report: RoundReport, shares: NoiseAllocation) -> dict[int, Reals]:
    """By client, float64 ``[d]``: its input less its clipped update, over the claimed standard deviation."""
    one, found = require_watched_round(report), {}
    for client, put_in in one.inputs.items():
        if client in one.sent.senders:
            update = clip_updates(one.sent.updates[[one.sent.senders.index(client)]], shares.plan.clip)
            found[client] = (put_in - update[0]).numpy() / shares.noise(update)
    return found


def _whole(reports: Sequence[RoundReport], shares: NoiseAllocation) -> Check:
    """Each sum equals the sum of the inputs of its clients."""
    off = 0.0
    for one in map(require_watched_round, reports):
        for row, behind in zip(one.rows, one.behind, strict=True):
            put_in = torch.stack([one.inputs[client] for client in behind]).sum(0)
            error = (row.double() * len(behind) - put_in).abs().max()
            off = max(off, float(error) / (shares.each + float(put_in.abs().max())))
    return Check(
        name="sum",
        p_value=float(off <= 1e-4),
        words=f"a sum differs from what its clients put in by up to {off:.1g} of its size",
    )
