"""The messages of one round: what clients send, what becomes of it, and what the server receives."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from torch import Tensor

from fedguard.memmap import let_go


class Fate(StrEnum):
    """What became of an update on its way into an aggregate.

    Attributes:
        ARRIVED: it reached the server.
        LATE: the aggregate did not wait for it, which ended its training.
        LOST: the network lost it.
        INTERRUPTED: its device went offline before it had arrived.
        SILENT: its client dropped out before sending it.
        LEFT: its client dropped out of the session after sending it, so that it is in the sum.
        NOT_FINITE: it held NaN or infinity, and so was dropped or could not be encoded.
        TOO_LARGE: the same for finite values beyond $2^112$, which do not add up in float32.
    """

    ARRIVED = "arrived"
    LATE = "late"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    SILENT = "silent"
    LEFT = "left"
    NOT_FINITE = "not_finite"
    TOO_LARGE = "too_large"


#: Fates of updates that no float32 can sum
UNUSABLE = (Fate.NOT_FINITE, Fate.TOO_LARGE)


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """One local training of one client, from its download of the model on, and its update.

    Attributes:
        client: the client that the update belongs to.
        began, ended: simulated seconds of the download, and of the arrival or the other end; equal while it is under way.
        fate: fate of its update.
        turn: number of the client's training, from 1; the round if all start together.
        version: version of the model that it began with: number of aggregates before it; of those that moved the model, once
            the update has arrived.
        by: the device that trains, whose the client's examples may be; None if all train for themselves.
        share, claimed: share of the client's work that is done, and share of its examples that it claims.
        start: float32 ``[d]``: that model, shared and not copied; None while it is under way.
        staleness: number of times that the model has moved since that version; an aggregate that does not change it does not
            count.
        scale: factor by which the architecture has multiplied the update for its staleness.
    """

    client: int
    began: float
    ended: float
    fate: Fate = Fate.ARRIVED
    turn: int = 0
    version: int = 0
    by: int | None = None
    share: float = 1.0
    claimed: float = 1.0
    start: Tensor | None = field(default=None, compare=False, repr=False)
    staleness: int = 0
    scale: float = 1.0

    @property
    def key(self) -> tuple[int, int]:
        """Client and turn, which no two trainings share."""
        return self.client, self.turn


@dataclass(frozen=True)
class MaskedRound:
    """The result of the sessions of secure aggregation in one round.

    Attributes:
        clients: number of clients that took part.
        sessions: number of sessions; one for all clients, or one for each group.
        aborted: why some of them gave no sum.
        survivors: number of clients with an update in a sum.
        anonymity: the fewest clients in any sum that the server can form, less the clients that may collude with it; None
            without a sum.
        contributors: the fewest clients in a sum that are sure to have added their share of any noise: all but the malicious
            ones and clients that may collude.
        error: norm of (decoded mean - true mean of the same clients' updates) over the norm of the true mean; None if there is
            no sum, or the true mean is zero. Over groups, the root of the sums of squares.
        clipped: share of the honest updates' coordinates that the encoding clipped.
        bytes_up, bytes_down: bytes that all clients sent, and bytes that the server sent.
    """

    clients: int
    sessions: int
    aborted: tuple[str, ...]
    survivors: int
    anonymity: int | None
    contributors: int | None
    error: float | None
    clipped: float
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True)
class SentRound:
    """The table of messages of one round: a row for each update, and the fates of updates that do not simply arrive.

    Attributes:
        round: from 1.
        model: float32 ``[d]``: the global model before the round.
        updates: float32 ``[n, d]``; all finite once `fedguard.architectures.wire.transmit` has dropped the others.
        senders: the client behind each row.
        malicious: the malicious ones among them.
        fates: what becomes of the updates that do not simply arrive, by client: of silent clients they have a row; of clients
            that are late, lost or interrupted they are here if their session has begun without them.
        trainings: the training behind each row; empty without simulated time.
        added: float32 ``[d]`` by malicious client: what it adds to the sums of others that it passes on.
        handed: float32 ``[d]`` by malicious client: what it adds to finished sums that it hands on.
        statistics: float32 ``[s]`` by client: the running statistics that it sends, under masks their moments; empty if nobody
            sends any.
    """

    round: int
    model: Tensor
    updates: Tensor
    senders: tuple[int, ...]
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
    def clients(self) -> tuple[int, ...]:
        """All who take part, with a row or with a fate alone, in ascending order."""
        return tuple(sorted({*self.senders, *self.fates}))

    def of_fate(self, *fates: Fate) -> tuple[int, ...]:
        """The clients with an update of one of these fates."""
        return tuple(client for client, fate in self.fates.items() if fate in fates)

    def without(self, clients: Collection[int]) -> SentRound:
        """The table without the rows of these clients: the last rows move into their places, in the same memory."""
        if not clients:
            return self
        order, kept, gone = list(self.senders), len(self.senders), set(clients)
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
        return replace(self, updates=rows, senders=tuple(order[:kept]), trainings=trained)


@dataclass(frozen=True)
class ReceivedRound:
    """What the server has of one round.

    Attributes:
        rows: float32 ``[m, d]``: single updates, or the means behind the sums that it sees; no rows if it has nothing.
        behind: the clients behind each row.
        samples: float64 ``[m]``: the total number of examples that these clients claim; None if they claim none.
        assumed_f: number of rows that the server assumes to be malicious.
        clients: clients with an update that reached the server, including clients that were left out.
        sent: the messages behind all rows, for measurements; under masks the server has never seen them.
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
    sent: SentRound
    why: str = "no update reached the server"
    masked: MaskedRound | None = None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)
    moments: tuple[Tensor, float] | None = None


@dataclass(frozen=True)
class RoundObservation:
    """One round, as seen by an observer that sees everything. The core derives from it what the server sees.

    Attributes:
        sent: the messages that were not lost; its model is the one that the clients received.
        after: float32 ``[d]``: the model after the round.
        behind: the clients behind each row of `rows`.
        rows: float32 ``[m, d]``: what the server has: each update, or the means behind its sums.
        aggregate: float32 ``[d]``: the aggregate of the round, with any noise; None if it was abandoned.
        inputs: float64 ``[d]`` by client: its input to a session, rounded and noisy, as if it were alone there; empty without
            masks.
        models: float32 ``[n, d]``: without a server, the model from which each node trained; None if all share one.
        heard: float32 ``[m, d]``: the messages of the round that the observing nodes received, in order.
        gain: factor of the aggregate before the server's step.
        statistics: float32 ``[s]``: the running statistics that all clients received; None if unknown.
    """

    sent: SentRound
    after: Tensor
    behind: tuple[tuple[int, ...], ...]
    rows: Tensor
    aggregate: Tensor | None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)
    models: Tensor | None = None
    heard: Tensor | None = None
    gain: float = 1.0
    statistics: Tensor | None = None
