"""Masking within groups: the server sees the sum of each, and a robust rule runs on their means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedguard.architectures.masking.contract import Masking, Received
from fedguard.architectures.masking.sessions import Sessions, received
from fedguard.architectures.wire import Sent
from fedguard.contracts import Groups, Setup


class Grouped(Masking):
    """One session for each group; one row for each whose session came about, the mean of those in its sum.

    All colluders of a round may sit in one group, so each session withstands as many among its own clients.
    """

    def __init__(self, setup: Setup, plan: Groups) -> None:
        super().__init__(setup)
        self._plan, clients = plan, setup.participation
        self._sessions = Sessions(setup, setup.protocol.session(clients.expected, clients.most, len(setup.hostile)))

    def receive(self, sent: Sent) -> Received:
        groups = self.deal(sent.clients, sent.round)
        sums = [self._sessions.run(sent, group, f"group {number}") for number, group in enumerate(groups)]
        return received(self.setup, sent, sums)

    def deal(self, clients: Sequence[int], round: int) -> list[tuple[int, ...]]:
        """The groups of a round: of ``clients``, those who would be in it; some may be empty."""
        rng = self.setup.rng.child("groups", round if self._plan.redraw else 0)
        everyone = clients if self._plan.redraw else range(self.setup.participation.total)
        order = rng.numpy().permutation(np.array(everyone, dtype=int)).tolist()
        groups = (order[number :: self._plan.groups] for number in range(self._plan.groups))
        return [tuple(sorted(set(group) & set(clients))) for group in groups]
