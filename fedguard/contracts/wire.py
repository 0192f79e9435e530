"""One round on its way: what leaves the clients, what of it the network loses, and what the server has of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from fedguard.mapped import let_go

if TYPE_CHECKING:
    from fedguard.contracts.reports import MaskedRound


@dataclass(frozen=True, eq=False)
class Push:
    """When one update came, and from which model.

    Attributes:
        staleness: how often the model has moved since that one; an aggregate that leaves it where it is does not count.
        at: simulated seconds of the arrival.
        scale: what the architecture has multiplied the update by for its age.
        start: float32 ``[d]``: the model, of which nobody makes a copy.
        share: of its examples that the client says it has trained on.
        version: the number of that model: how often the first one had moved by then.
    """

    staleness: int
    at: float
    scale: float
    start: Tensor
    share: float = 1.0
    version: int = 0


@dataclass(frozen=True)
class Wire:
    """What travels to the server in one round.

    Attributes:
        updates: float32 ``[n, d]``.
        clients: the client behind each row.
        malicious: those of them that are malicious.
        pushes: when each row came, and from which model; none without simulated time.
        added: float32 ``[d]``, by malicious client: what it adds to the sums of others that it passes on.
        handed: the same of finished sums that it hands on.
    """

    updates: Tensor
    clients: tuple[int, ...]
    malicious: frozenset[int]
    pushes: tuple[Push, ...] = ()
    added: Mapping[int, Tensor] = field(default_factory=dict)
    handed: Mapping[int, Tensor] = field(default_factory=dict)

    def without(self, clients: Collection[int]) -> Wire:
        """The wire without these clients: the last rows are moved into their places, in the same memory."""
        if not clients:
            return self
        order, kept = list(self.clients), len(self.clients)
        pushes = list(self.pushes)
        for row in reversed(range(kept)):
            if order[row] in clients:
                kept -= 1
                self.updates[row] = self.updates[kept]
                let_go(self.updates)
                order[row], order[kept] = order[kept], order[row]
                if pushes:
                    pushes[row] = pushes[kept]
        left = self.updates[:kept], tuple(order[:kept]), self.malicious, tuple(pushes[:kept])
        return Wire(*left, self.added, self.handed)


@dataclass(frozen=True)
class SentRound:
    """One round, as it leaves the clients.

    Attributes:
        round: from 1.
        model: float32 ``[d]``: the global model before the round.
        wire: the updates, all finite.
        not_finite: the clients whose update held NaN, infinity, or values that do not add up in float32; all are dropped.
        too_large: those of them whose update was finite, and held values beyond `fedguard.kernels.LARGEST`.
        silent: the clients that fall silent, at the step that the protocol names.
        lost: those of them whose update reaches nobody.
        absent: who else is in the session of the round, and whose update does not come in time.
    """

    round: int
    model: Tensor
    wire: Wire
    not_finite: tuple[int, ...]
    too_large: tuple[int, ...]
    silent: frozenset[int]
    lost: frozenset[int]
    absent: tuple[int, ...] = ()

    @cached_property
    def model_hash(self) -> bytes:
        """SHA-256 of the model, to which the sessions of the round are bound."""
        return hashlib.sha256(self.model.numpy().tobytes()).digest()

    @property
    def clients(self) -> tuple[int, ...]:
        """All who take part, in ascending order."""
        return tuple(sorted((*self.wire.clients, *self.not_finite, *self.absent)))


@dataclass(frozen=True)
class ReceivedRound:
    """What the server has of one round.

    Attributes:
        rows: float32 ``[m, d]``: single updates, or the means behind the sums that it sees; none where it has nothing.
        behind: the clients behind each row.
        samples: float64 ``[m]``: the examples that these claim together; None where nobody tells.
        told: how many of the rows may be malicious, as far as the server reckons.
        clients: whose updates reached it, those that were left out included.
        excluded: the clients whom the protocol itself has left out as malicious.
        truth: the single updates behind it all, for measurements; under masks the server has never seen them.
        why: why it has nothing, where it has nothing.
        masked: what the sessions came to; None without masks.
        inputs: by client, float64 ``[d]``: what it put into its session, where somebody watches who sees everything.
    """

    rows: Tensor
    behind: tuple[tuple[int, ...], ...]
    samples: Tensor | None
    told: int
    clients: tuple[int, ...]
    truth: Wire
    excluded: tuple[int, ...] = ()
    why: str = "no update reached the server"
    masked: MaskedRound | None = None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def of_groups(self) -> bool:
        """Whether rows may stand for several clients."""
        return self.masked is not None or any(len(row) != 1 for row in self.behind)
