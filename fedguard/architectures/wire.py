"""The updates that clients send in a round, and those that are lost."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from torch import Tensor

from fedguard.contracts import BEFORE_THE_INPUT, Fate, SentRound, Setup, Wire
from fedguard.kernels import unusable_rows
from fedguard.memmap import let_go


def leave(
    setup: Setup, model: Tensor, round: int, wire: Wire, missing: Mapping[int, Fate] = MappingProxyType({})
) -> SentRound:
    """The updates that clients send: finite, and not longer than the protocol's norm bound; and the clients that drop out.

    The same clients drop out in all cells of one seed. Those of a lower dropout rate also drop out at a higher one.

    Args:
        missing: fates of clients of the session whose update does not arrive.
    """
    protocol = setup.cell.protocol
    wire, dropped = drop_not_finite(wire)
    fates = {**missing, **dropped}
    if protocol.norm_bound is not None:
        shorten(wire.updates, protocol.norm_bound)
    if protocol.dropout.rate:
        drawn = setup.rng.child("dropout", round).numpy().random(len(setup.task.sizes))
        silent = set(np.flatnonzero(drawn < protocol.dropout.rate).tolist())
        if setup.cell.attack is not None and setup.cell.threat.stays:
            silent -= setup.malicious
        if protocol.dropout.at in BEFORE_THE_INPUT:
            # Nobody finds out what they would have sent
            fates |= dict.fromkeys(sorted(silent & {*wire.clients, *fates}), Fate.SILENT)
        else:
            fates |= dict.fromkeys(sorted(silent & {*wire.clients}), Fate.LEFT)
    return SentRound(round, model, wire, fates)


def drop_not_finite(wire: Wire) -> tuple[Wire, dict[int, Fate]]:
    """Drop updates with NaN, infinity, or values beyond `LARGEST`, and those beside running statistics that are not finite.

    Returns:
        the other updates; the fate of each dropped one by its client, in ascending order.
    """
    fates: dict[int, Fate] = {}
    for row in sorted(unusable_rows(wire.updates), key=lambda row: wire.clients[row]):
        finite = bool(wire.updates[row].isfinite().all())
        fates[wire.clients[row]] = Fate.TOO_LARGE if finite else Fate.NOT_FINITE
    for client, statistics in wire.statistics.items():
        if not statistics.isfinite().all():
            fates.setdefault(client, Fate.NOT_FINITE)
    return wire.without(fates), dict(sorted(fates.items()))


def shorten(updates: Tensor, bound: float) -> None:
    """Scale rows (float32 ``[n, d]``) that are longer than ``bound`` down to it, in place."""
    for row in updates:
        length = float(row.double().norm())
        if length > bound:
            row.mul_(bound / length)
        let_go(updates)
