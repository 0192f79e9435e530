"""Delivers the messages of a session between a server and its clients, one state at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from fedguard.secagg.client import Client
from fedguard.secagg.contest import Party
from fedguard.secagg.errors import ProtocolError
from fedguard.secagg.masks import RingVector
from fedguard.secagg.messages import MaskedInput, unpack
from fedguard.secagg.server import ProtocolServer
from fedguard.secagg.transitions import ServerState

Peer = Party | Client


def try_delivery(peer: Peer, data: bytes) -> tuple[bytes | None, str]:
    """The answer to a message and "answered"; or None and the name of the error."""
    try:
        return peer.receive(data), "answered"
    except ProtocolError as error:
        return None, type(error).__name__


class Relay:
    """The network of an honest-but-curious or malicious server. A client that refuses a message counts as dropped.

    Attributes:
        mail: what the server sends next, by client.
        masked: the masked inputs seen on the network.
        refused: the errors of clients, by name, with the clients that raised them.
    """

    def __init__(
        self, server: ProtocolServer, peers: Mapping[int, Peer], mail: Mapping[int, bytes] | None = None
    ) -> None:
        self.server, self.peers = server, peers
        self.mail: Mapping[int, bytes] = mail or dict.fromkeys(peers, server.hello())
        self.masked: dict[int, RingVector] = {}
        self.refused: dict[str, list[int]] = {}

    def step(self, bent: Callable[[int, bytes], bytes] = lambda client, answer: answer) -> None:
        """Deliver the mail, take the answers, and close the server's state.

        Args:
            bent: replaces an answer on its way to the server.

        Raises:
            ProtocolError: the server cannot accept an answer, or cannot continue with the clients that answered.
        """
        for client in sorted(self.mail.keys() & self.peers.keys()):
            answer, fate = try_delivery(self.peers[client], self.mail[client])
            if answer is None:
                self.refused.setdefault(fate, []).append(client)
                continue
            answer = bent(client, answer)
            self.server.receive(answer)
            message = unpack(answer).message
            if isinstance(message, MaskedInput):
                self.masked[client] = np.frombuffer(message.vector, self.server.config.dtype)
        self.mail = self.server.close()

    def run(self, until: ServerState = ServerState.DONE) -> Relay:
        """Step until the server reaches this state."""
        while self.server.state is not until:
            self.step()
        return self

    def refusals(self) -> str:
        """In words, such as ``ModelMismatch of clients 1, 2``."""
        return "; ".join(f"{error} of {_list_clients(who)}" for error, who in self.refused.items())


def _list_clients(clients: Collection[int]) -> str:
    if len(clients) > 8:
        return f"{len(clients)} clients"
    return f"client{'s' if len(clients) > 1 else ''} {', '.join(map(str, clients))}"
