"""The updates that clients send in a round, and those that are lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from fedguard.contracts import BEFORE_THE_INPUT, Fate, SentRound, Setup
from fedguard.kernels import unusable_rows
from fedguard.memmap import let_go


def transmit(setup: Setup, sent: SentRound) -> SentRound:
    """The updates that clients send: finite, and not longer than the protocol's norm bound; and the clients that drop out.

    The same clients drop out in all cells of one seed. Those of a lower dropout rate also drop out at a higher one.

    Args:
        sent: what the clients have ready, with the fates of clients of the session whose update does not arrive.
    """
    protocol = setup.cell.protocol
    sent = drop_not_finite(sent)
    if protocol.norm_bound is not None:
        shorten(sent.updates, protocol.norm_bound)
    if not protocol.dropout.rate:
        return sent
    return replace(sent, fates={**sent.fates, **_draw_dropouts(setup, sent)})


def _draw_dropouts(setup: Setup, sent: SentRound) -> dict[int, Fate]:
    """Fates of the clients that drop out, before or after they have sent their update."""
    dropout = setup.cell.protocol.dropout
    drawn = setup.rng.child("dropout", sent.round).numpy().random(len(setup.task.sizes))
    silent = set(np.flatnonzero(drawn < dropout.rate).tolist())
    if setup.cell.attack is not None and setup.cell.threat.stays:
        silent -= setup.malicious
    if dropout.at in BEFORE_THE_INPUT:
        # Nobody finds out what they would have sent
        return dict.fromkeys(sorted(silent & {*sent.clients}), Fate.SILENT)
    return dict.fromkeys(sorted(silent & {*sent.senders}), Fate.LEFT)


def drop_not_finite(sent: SentRound) -> SentRound:
    """Drop updates with NaN, infinity, or values beyond `LARGEST`, and those beside running statistics that are not finite.

    Returns:
        the table of the other updates, with the fate of each dropped one, by client in ascending order.
    """
    fates: dict[int, Fate] = {}
    for row in sorted(unusable_rows(sent.updates), key=lambda row: sent.senders[row]):
        finite = bool(sent.updates[row].isfinite().all())
        fates[sent.senders[row]] = Fate.TOO_LARGE if finite else Fate.NOT_FINITE
    for client, statistics in sent.statistics.items():
        if not statistics.isfinite().all():
            fates.setdefault(client, Fate.NOT_FINITE)
    if not fates:
        return sent
    return replace(sent.without(fates), fates={**sent.fates, **dict(sorted(fates.items()))})


def shorten(updates: Tensor, bound: float) -> None:
    """Scale rows (float32 ``[n, d]``) that are longer than ``bound`` down to it, in place."""
    for row in updates:
        length = float(row.double().norm())
        if length > bound:
            row.mul_(bound / length)
        let_go(updates)
