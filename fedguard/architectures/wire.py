"""What leaves the clients in one round, and what of it the network loses."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from fedguard.contracts import BEFORE_THE_INPUT, Setup
from fedguard.kernels import usable_rows
from fedguard.mapped import let_go


@dataclass(frozen=True)
class Wire:
    """What travels to the server in one round.

    Attributes:
        updates: float32 ``[n, d]``.
        clients: the client behind each row.
        malicious: those of them that are malicious.
    """

    updates: Tensor
    clients: tuple[int, ...]
    hostile: frozenset[int]

    def without(self, clients: Collection[int]) -> Wire:
        """The wire without these clients: the last rows are moved into their places, in the same memory."""
        order, kept = list(self.clients), len(self.clients)
        for row in reversed(range(kept)):
            if order[row] in clients:
                kept -= 1
                self.updates[row] = self.updates[kept]
                let_go(self.updates)
                order[row], order[kept] = order[kept], order[row]
        return Wire(self.updates[:kept], tuple(order[:kept]), self.hostile)


@dataclass(frozen=True)
class Sent:
    """One round, as it leaves the clients.

    Attributes:
        round: from 1.
        model: float32 ``[d]``: the global model before the round.
        wire: the updates, all finite.
        not_finite: the clients whose update held NaN, infinity, or values that do not add up in float32; all are dropped.
        too_large: those of them whose update was finite, and held values beyond `fedguard.kernels.LARGEST`.
        silent: the clients that fall silent, at the step that the protocol names.
        lost: those of them whose update reaches nobody.
    """

    round: int
    model: Tensor
    wire: Wire
    not_finite: tuple[int, ...]
    too_large: tuple[int, ...]
    silent: frozenset[int]
    lost: frozenset[int]

    @cached_property
    def model_hash(self) -> bytes:
        """SHA-256 of the model, to which the sessions of the round are bound."""
        return hashlib.sha256(self.model.numpy().tobytes()).digest()

    @property
    def clients(self) -> tuple[int, ...]:
        """All who take part, in ascending order."""
        return tuple(sorted((*self.wire.clients, *self.not_finite)))


def leave(setup: Setup, model: Tensor, round: int, wire: Wire) -> Sent:
    """What leaves the clients: finite updates, no longer than the bound whose proof is asked for; and who falls silent.

    The same clients fall silent in all cells with one seed, and of a higher rate those of a lower.
    """
    protocol = setup.protocol
    wire, not_finite, too_large = drop_not_finite(wire)
    if protocol.norm_bound is not None:
        shorten(wire.updates, protocol.norm_bound)
    drawn = setup.rng.child("dropout", round).numpy().random(len(setup.task.sizes))
    silent = frozenset(np.flatnonzero(drawn < protocol.dropout.rate).tolist())
    lost = silent if protocol.dropout.at in BEFORE_THE_INPUT else frozenset()
    return Sent(round, model, wire, not_finite, too_large, silent, lost)


def drop_not_finite(wire: Wire) -> tuple[Wire, tuple[int, ...], tuple[int, ...]]:
    """Drop updates with NaN, infinity or values beyond `LARGEST`; say which clients sent them, and whose were finite."""
    bad = (~usable_rows(wire.updates)).nonzero()[:, 0].tolist()
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
