"""The updates that clients send in a round, and those that are lost."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedguard.contracts import BEFORE_THE_INPUT, SentRound, Setup, Wire
from fedguard.kernels import unusable_rows
from fedguard.memmap import let_go


def leave(setup: Setup, model: Tensor, round: int, wire: Wire) -> SentRound:
    """The updates that clients send: finite, and not longer than the protocol's norm bound; and the clients that drop out.

    The same clients drop out in all cells of one seed. Those of a lower dropout rate also drop out at a higher one.
    """
    protocol = setup.cell.protocol
    wire, not_finite, too_large = drop_not_finite(wire)
    if protocol.norm_bound is not None:
        shorten(wire.updates, protocol.norm_bound)
    silent: frozenset[int] = frozenset()
    if protocol.dropout.rate:
        drawn = setup.rng.child("dropout", round).numpy().random(len(setup.task.sizes))
        silent = frozenset(np.flatnonzero(drawn < protocol.dropout.rate).tolist())
        if setup.cell.attack is not None and setup.cell.threat.stays:
            silent -= setup.malicious
    lost = silent if protocol.dropout.at in BEFORE_THE_INPUT else frozenset()
    return SentRound(round, model, wire, not_finite, too_large, silent, lost)


def drop_not_finite(wire: Wire) -> tuple[Wire, tuple[int, ...], tuple[int, ...]]:
    """Drop updates with NaN, infinity, or values beyond `LARGEST`.

    Returns:
        the other updates; the clients whose updates were dropped; the ones among these with a finite update.
    """
    bad = unusable_rows(wire.updates)
    if not bad:
        return wire, (), ()
    dropped = tuple(sorted(wire.clients[row] for row in bad))
    too_large = tuple(sorted(wire.clients[row] for row in bad if bool(wire.updates[row].isfinite().all())))
    return wire.without(dropped), dropped, too_large


def shorten(updates: Tensor, bound: float) -> None:
    """Scale rows (float32 ``[n, d]``) that are longer than ``bound`` down to it, in place."""
    for row in updates:
        length = float(row.double().norm())
        if length > bound:
            row.mul_(bound / length)
        let_go(updates)
