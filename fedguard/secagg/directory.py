"""The advertised keys of all clients: the public facts of a session after R0."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from fedguard.secagg.codec import Header, Phase
from fedguard.secagg.graph import neighbors
from fedguard.secagg.messages import KeyAdvertisement
from fedguard.secagg.session import SessionConfig

SESSION = b"FedGuard/secagg/v2/session"
GRAPH = b"FedGuard/secagg/v2/graph"


@dataclass(frozen=True)
class Directory:
    """The keys that each client advertised in a session, and the graph that follows from them.

    Attributes:
        proposal: identifier of the accepted proposal (`proposal_id`).
        entries: advertisements by client id, in ascending order.
    """

    proposal: bytes
    config: SessionConfig
    round: int
    entries: Mapping[int, KeyAdvertisement]

    @cached_property
    def sid(self) -> bytes:
        """The session's identifier: SHA-256(label, proposal, every client's fresh keys), 32 bytes.

        Every signature and every key after the roster depends on it. It contains keys that each client has just made, so no two
        sessions of a client have the same id, whatever the server repeats. Parties that were shown different keys share no
        session.
        """
        packed = (struct.pack("<I", client) + entry.body() for client, entry in self.entries.items())
        return hashlib.sha256(SESSION + self.proposal + b"".join(packed)).digest()

    @cached_property
    def neighbors(self) -> Mapping[int, tuple[int, ...]]:
        """The neighbors of each client, in ascending order.

        The graph is drawn from the session id, and so from all fresh keys: nobody knows it before they are.
        """
        # A hash of its own, so that the seed is no value that serves as a salt or an id elsewhere
        seed = hashlib.sha256(GRAPH + self.sid).digest()
        return neighbors(seed, tuple(self.entries), self.config.degree)

    def encryption(self, client: int) -> tuple[int, bytes]:
        """(id, public encryption key) of a client."""
        return client, self.entries[client].encryption_key

    def mask(self, client: int) -> tuple[int, bytes]:
        """(id, public mask key) of a client."""
        return client, self.entries[client].mask_key

    def share_header(self, sender: int, receiver: int) -> bytes:
        """Associated data of an encrypted share: version, suite, session, round, phase, sender and receiver."""
        header = Header(self.config.suite, Phase.SHARE, self.sid, self.round, sender)
        return header.pack() + struct.pack("<I", receiver)

    def among(self, client: int, others: Collection[int]) -> list[int]:
        """The neighbors of a client that are in a set, in ascending order."""
        # Messages refer to neighbors by their position in this list, so both ends must have this one order
        return [neighbor for neighbor in self.neighbors[client] if neighbor in others]
