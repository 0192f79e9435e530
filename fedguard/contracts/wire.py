"""The messages of one round: what clients send, what becomes of it, and what the server receives."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from fedguard.contracts.reports import Fate, LocalTraining, MaskedRound
from fedguard.memmap import let_go


@dataclass(frozen=True)
class SentRound:
    """The table of messages of one round: a row for each update, and the fates of those that do not simply arrive.

    Attributes:
        round: from 1.
        model: float32 ``[d]``: the global model before the round.
        updates: float32 ``[n, d]``; all finite once `fedguard.architectures.wire.transmit` has dropped the others.
        clients: the client behind each row.
        malicious: the malicious ones among them.
        fates: what becomes of the updates that do not simply arrive, by client: of silent clients they have a row; of clients
            that are late, lost or interrupted they are here if their session has begun without them.
        trainings: the training behind each row; empty without simulated time.
        added: float32 ``[d]`` by malicious client: what it adds to the sums of others that it passes on.
        handed: float32 ``[d]`` by malicious client: what it adds to finished sums that it hands on.
        statistics: float32 ``[s]`` by client: the running statistics that it sends; empty if nobody sends any.
    """

    round: int
    model: Tensor
    updates: Tensor
    clients: tuple[int, ...]
    malicious: frozenset[int] = frozenset()
    fates: Mapping[int, Fate] = field(default_factory=dict)
    trainings: tuple[LocalTraining, ...] = ()
    added: Mapping[int, Tensor] = field(default_factory=dict)
    handed: Mapping[int, Tensor] = field(default_factory=dict)
    statistics: Mapping[int, Tensor] = field(default_factory=dict)

    @cached_property
    def model_hash(self) -> bytes:
        """SHA-256 of the model, to which the sessions of the round are bound."""
        return hashlib.sha256(self.model.numpy().tobytes()).digest()

    @property
    def participants(self) -> tuple[int, ...]:
        """All who take part, with a row or with a fate alone, in ascending order."""
        return tuple(sorted({*self.clients, *self.fates}))

    def of_fate(self, *fates: Fate) -> tuple[int, ...]:
        """The clients with an update of one of these fates."""
        return tuple(client for client, fate in self.fates.items() if fate in fates)

    def without(self, clients: Collection[int]) -> SentRound:
        """The table without the rows of these clients: the last rows move into their places, in the same memory."""
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
        rows, trained = self.updates[:kept], tuple(trainings[:kept])
        return replace(self, updates=rows, clients=tuple(order[:kept]), trainings=trained)


@dataclass(frozen=True)
class ReceivedRound:
    """What the server has of one round.

    Attributes:
        rows: float32 ``[m, d]``: single updates, or the means behind the sums that it sees; no rows if it has nothing.
        behind: the clients behind each row.
        samples: float64 ``[m]``: the total number of examples that these clients claim; None if they claim none.
        assumed_f: number of rows that the server assumes to be malicious.
        clients: clients with an update that reached the server, including those that were left out.
        sent: the messages behind all rows, for measurements; under masks the server has never seen them.
        why: reason why the server has nothing, if it has nothing.
        masked: result of the sessions; None without masks.
        inputs: float64 ``[d]`` by client: its input to its session, if an observer sees everything.
    """

    rows: Tensor
    behind: tuple[tuple[int, ...], ...]
    samples: Tensor | None
    assumed_f: int
    clients: tuple[int, ...]
    sent: SentRound
    why: str = "no update reached the server"
    masked: MaskedRound | None = None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def of_groups(self) -> bool:
        """Whether a row may cover several clients."""
        return self.masked is not None or any(len(row) != 1 for row in self.behind)
