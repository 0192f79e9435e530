"""Full masking: the server sees one sum (Bonawitz et al., CCS 2017; Bell et al., CCS 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.architectures.masking.sessions import SessionRunner, receive_sums
from fedguard.contracts import Masking, ReceivedRound, Receiver, SentRound, Setup


@dataclass(frozen=True, kw_only=True)
class FullMasking(Masking):
    """One session of all clients: the server sees one sum.

    The rule gets one row: the mean of the updates in the sum.
    """

    name = "full"
    source = "Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020"
    words = "The server sees one sum of all updates, and its rule gets their mean; nobody sees another's update."
    cost = "O(log n) keys and shares and one masked vector for each client"

    def receiver(self, setup: Setup) -> Receiver:
        return FullReceiver(setup)


class FullReceiver(Receiver):
    """One session of all clients; the only row is the mean of the updates in the sum."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._sessions = SessionRunner(setup, setup.cell.size)

    def receive(self, sent: SentRound) -> ReceivedRound:
        return receive_sums(self.setup, sent, [self._sessions.run(sent, sent.clients, "all")])
