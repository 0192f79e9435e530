"""Full masking: the server sees one sum (Bonawitz et al., CCS 2017; Bell et al., CCS 2020)."""

from __future__ import annotations

from fedguard.architectures.masking.contract import Masking, Received
from fedguard.architectures.masking.sessions import Sessions, received
from fedguard.architectures.wire import Sent
from fedguard.contracts import Setup


class Full(Masking):
    """One session of all clients; the only row is the mean of those whose update is in the sum."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        clients = setup.participation
        self._sessions = Sessions(setup, setup.protocol.session(clients.expected, clients.most, len(setup.hostile)))

    def receive(self, sent: Sent) -> Received:
        return received(self.setup, sent, [self._sessions.run(sent, sent.clients, "all")])
