"""No secure aggregation: each update travels as it is."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedguard.contracts import Cell, Fate, Masking, ReceivedRound, Receiver, SentRound, Setup, Sight
from fedguard.contracts.wire import UNUSABLE
from fedguard.errors import require


class PlainReceiver(Receiver):
    """Each update travels unmasked; one row for each client that did not drop out before it sent its update."""

    def receive(self, sent: SentRound) -> ReceivedRound:
        arrived, not_finite = sent.without(sent.of_fate(Fate.SILENT)), sent.of_fate(*UNUSABLE)
        clients = (*arrived.senders, *not_finite)
        # Honest clients may drop out too, so a dropout is no evidence of malice: f follows from who sent. But an honest update
        # is finite, so each dropped one came from one of the malicious clients that the server assumes.
        assumed_f = max(0, self.setup.assume_f_among(len(clients)) - len(not_finite))
        sizes, said = self.setup.task.sizes, self.setup.claims
        claims: list[float] = [
            said[client] if client in sent.malicious else sizes[client] for client in arrived.senders
        ]
        if arrived.trainings:
            claims = [claim * training.claimed for claim, training in zip(claims, arrived.trainings, strict=True)]
        samples, behind = torch.tensor(claims, dtype=torch.float64), tuple((client,) for client in arrived.senders)
        return ReceivedRound(arrived.updates, behind, samples, assumed_f, clients, arrived)


@dataclass(frozen=True, kw_only=True)
class NoMasking(Masking):
    """No masks: the server sees each update."""

    name = "none"
    hides = Sight.NOTHING
    shows = Sight.NOTHING
    masked = False
    words = "The server sees each update, and malicious clients who tap the wire see those of the honest clients."
    cost = "nothing: each update travels as it is"

    def rows(self, clients: int) -> int:
        return clients

    def check(self, cell: Cell) -> None:
        require(
            cell.protocol.norm_bound is None,
            "norm_bound: lengths are proven under masks, and secure_aggregation is off: the server sees them. Use the defense "
            "clip(bound=...) >> mean.",
        )

    def receiver(self, setup: Setup) -> Receiver:
        return PlainReceiver(setup)
