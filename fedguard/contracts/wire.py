"""One round in transit: what clients send, what the network loses, and what the server receives."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from fedguard.contracts.reports import Fate, LocalTraining, MaskedRound
from fedguard.memmap import let_go


@dataclass(frozen=True)
class Wire:
    """The messages to the server in one round.

    Attributes:
        updates: float32 ``[n, d]``.
        clients: the client behind each row.
        malicious: the malicious ones among them.
        trainings: the training behind each row; empty without simulated time.
        added: float32 ``[d]`` by malicious client: what it adds to the sums of others that it passes on.
        handed: float32 ``[d]`` by malicious client: what it adds to finished sums that it hands on.
        statistics: float32 ``[s]`` by client: the running statistics that it sends, under masks their moments; empty if nobody
            sends any.
    """

    updates: Tensor
    clients: tuple[int, ...]
    malicious: frozenset[int]
    trainings: tuple[LocalTraining, ...] = ()
    added: Mapping[int, Tensor] = field(default_factory=dict)
    handed: Mapping[int, Tensor] = field(default_factory=dict)
    statistics: Mapping[int, Tensor] = field(default_factory=dict)

    def without(self, clients: Collection[int]) -> Wire:
        """The wire without these clients: the last rows move into their places, in the same memory."""
        if not clients:
            return self
        order, kept, gone = list(self.clients), len(self.clients), set(clients)
        trainings = list(self.trainings)
        for row in reversed(range(kept)):
            if order[row] in gone:
                kept -= 1
                self.updates[row] = self.updates[kept]
                let_go(self.updates)
                order[row], order[kept] = order[kept], order[row]
                if trainings:
                    trainings[row] = trainings[kept]
        left = self.updates[:kept], tuple(order[:kept]), self.malicious, tuple(trainings[:kept])
        return Wire(*left, self.added, self.handed, self.statistics)


@dataclass(frozen=True)
class SentRound:
    """One round, as it leaves the clients.

    Attributes:
        round: from 1.
        model: float32 ``[d]``: the global model before the round.
        wire: the updates, all finite.
        fates: what becomes of the updates that do not simply arrive, by client: of silent clients they are among `wire`; of
            clients that are late, lost or interrupted they are here if their session has begun without them.
    """

    round: int
    model: Tensor
    wire: Wire
    fates: Mapping[int, Fate] = field(default_factory=dict)

    @cached_property
    def model_hash(self) -> bytes:
        """SHA-256 of the model, to which the sessions of the round are bound."""
        return hashlib.sha256(self.model.numpy().tobytes()).digest()

    @property
    def clients(self) -> tuple[int, ...]:
        """All who take part, in ascending order."""
        return tuple(sorted({*self.wire.clients, *self.fates}))

    def of_fate(self, *fates: Fate) -> tuple[int, ...]:
        """The clients with an update of one of these fates."""
        return tuple(client for client, fate in self.fates.items() if fate in fates)


@dataclass(frozen=True)
class ReceivedRound:
    """What the server has of one round.

    Attributes:
        rows: float32 ``[m, d]``: single updates, or the means behind the sums that it sees; no rows if it has nothing.
        behind: the clients behind each row.
        samples: float64 ``[m]``: the total number of examples that these clients claim; None if they claim none.
        assumed_f: number of rows that the server assumes to be malicious.
        clients: clients with an update that reached the server, including those that were left out.
        truth: the single updates behind all rows, for measurements; under masks the server has never seen them.
        why: reason why the server has nothing, if it has nothing.
        masked: result of the sessions; None without masks.
        inputs: float64 ``[d]`` by client: its input to its session, if an observer sees everything.
        moments: under masks, the weighted sum of the moments of running statistics (float64 ``[s]``), and its weight.
    """

    rows: Tensor
    behind: tuple[tuple[int, ...], ...]
    samples: Tensor | None
    assumed_f: int
    clients: tuple[int, ...]
    truth: Wire
    why: str = "no update reached the server"
    masked: MaskedRound | None = None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)
    moments: tuple[Tensor, float] | None = None
