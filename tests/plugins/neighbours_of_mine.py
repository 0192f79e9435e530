"""Sums over neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from fedguard.architectures.masking.sessions import SessionRunner, receive_sums
from fedguard.contracts import (
    MASKED_SUM,
    SINGLE_UPDATES,
    Federation,
    Masking,
    ReceivedRound,
    Receiver,
    SentRound,
    Setup,
    Sight,
)
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class Neighbours(Masking):
    """Neighbours by number sum up what they send.

    Args:
        size: how many clients a sum is over.
    """

    name = "neighbours"
    words = "The server sees the sum of each few neighbours."
    cost = "one masked vector for each client"

    size: Annotated[int, Ge(2)] = 4

    def sessions(self, clients: int) -> int:
        return max(clients // self.size, 1)

    def check(self, federation: Federation) -> None:
        clients = federation.clients
        require(clients.expected == clients.total, "neighbours stay the same: set clients.per_round: 1.0.")
        require(clients.total % self.size == 0, f"neighbours: {clients.total} clients are not dealt into {self.size}s.")

    def receiver(self, setup: Setup) -> Few:
        return Few(setup, self.size)


@dataclass(frozen=True, kw_only=True)
class OpenNeighbours(Neighbours):
    """Neighbours by number sum up what they send, and rules are given the sums."""

    name = "open_neighbours"
    hides = SINGLE_UPDATES
    shows = MASKED_SUM | Sight.GROUP_SUMS


class Few(Receiver):
    def __init__(self, setup: Setup, size: int) -> None:
        super().__init__(setup)
        self._size, self._sessions = size, SessionRunner(setup, setup.federation.size)

    def receive(self, sent: SentRound) -> ReceivedRound:
        few = [sent.clients[at : at + self._size] for at in range(0, len(sent.clients), self._size)]
        return receive_sums(self.setup, sent, [self._sessions.run(sent, one, f"few {one[0]}") for one in few])
