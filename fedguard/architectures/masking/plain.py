"""No masks: the server sees each update."""

from __future__ import annotations

import torch

from fedguard.architectures.masking.contract import Masking, Received
from fedguard.architectures.wire import Sent


class Plain(Masking):
    """Each update travels as it is; one row for each client that did not fall silent before it sent."""

    def receive(self, sent: Sent) -> Received:
        wire = sent.wire.without(sent.lost)
        not_finite = tuple(client for client in sent.not_finite if client not in sent.lost)
        arrived = (*wire.clients, *not_finite)
        # Honest clients may fall silent too, so silence is not held against anybody: f follows from who sent. But an
        # honest update is finite, so each dropped one was among the malicious ones that the server reckons with.
        told = max(0, self.setup.told_among(len(arrived)) - len(not_finite))
        claims = torch.tensor([self.setup.task.sizes[client] for client in wire.clients], dtype=torch.float64)
        return Received(wire.updates, tuple((client,) for client in wire.clients), claims, told, arrived, wire)
