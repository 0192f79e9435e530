"""A session of an honest server, on a network that malicious clients control."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fedguard.secagg.client import Client
from fedguard.secagg.contest import Arena, Party
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.transitions import ServerState

#: Maps a client and its answer to the messages that reach the server: none, the answer, or others as well.
Arrivals = Callable[[int, bytes], Iterable[bytes]]


class ProtocolNetwork:
    """Delivers messages until the server has a sum or aborts.

    Attributes:
        errors: the errors of honest parties, in order.
    """

    def __init__(self, server: ProtocolServer, peers: Mapping[int, Party | Client]) -> None:
        self.server, self.peers = server, peers
        self.errors: list[ProtocolError] = []

    @classmethod
    def of(cls, arena: Arena, kind: type[Client] | None = None) -> ProtocolNetwork:
        """A network of all clients in an arena; the colluders are of a ``kind``, or follow the protocol."""
        peers: dict[int, Party | Client] = {**arena.parties()}
        peers |= {client: arena.accomplice(client, kind=kind) for client in arena.colluders}
        return cls(arena.server(), peers)

    def run(self, arrivals: Arrivals = lambda client, answer: [answer]) -> ProtocolNetwork:
        """The whole session."""
        mail: Mapping[int, bytes] = dict.fromkeys(self.peers, self.server.hello())
        while self.server.state not in (ServerState.DONE, ServerState.ABORTED):
            for client, data in mail.items():
                self._exchange(client, data, arrivals)
            try:
                mail = self.server.close()
            except ProtocolError as error:
                self.errors.append(error)
        self.errors += self.server.blamed
        return self

    @property
    def named(self) -> set[int]:
        """The clients that honest parties named as cheats."""
        return {error.party for error in self.errors if error.party is not None}

    def _exchange(self, client: int, data: bytes, arrivals: Arrivals) -> None:
        try:
            answer = self.peers[client].receive(data)
        except ProtocolError as error:
            if isinstance(self.peers[client], Party):
                self.errors.append(error)
            return
        for message in arrivals(client, answer):
            try:
                self.server.receive(message)
            except ProtocolError as error:
                self.errors.append(error)
