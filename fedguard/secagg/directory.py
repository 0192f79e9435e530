"""Whose keys are whose: the public facts of a session once all keys are advertised."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from fedguard.secagg.codec import Header, Phase
from fedguard.secagg.graph import neighbours
from fedguard.secagg.messages import KeyAdvertisement
from fedguard.secagg.session import SessionConfig

SESSION = b"FedGuard/secagg/v2/session"
GRAPH = b"FedGuard/secagg/v2/graph"


@dataclass(frozen=True)
class Directory:
    """Who advertised which keys in a session, and the graph that follows.

    Attributes:
        proposal: the identifier of what was agreed before (`proposal_id`).
        entries: by client id, in ascending order.
    """

    proposal: bytes
    config: SessionConfig
    round: int
    entries: Mapping[int, KeyAdvertisement]

    @cached_property
    def sid(self) -> bytes:
        """The session's identifier: SHA-256(label, proposal, every client's fresh keys), 32 bytes.

        Every signature and every key after the roster depends on it. Since each client finds keys in it that it has just
        made, no two of its sessions have the same one, whatever the server repeats; and parties that were shown different
        keys share no session.
        """
        packed = (struct.pack("<I", client) + entry.body() for client, entry in self.entries.items())
        return hashlib.sha256(SESSION + self.proposal + b"".join(packed)).digest()

    @cached_property
    def neighbours(self) -> Mapping[int, tuple[int, ...]]:
        """The neighbors of each client, in ascending order.

        The graph is drawn from the session id, and so from all fresh keys: nobody knows it before they are.
        """
        seed = hashlib.sha256(GRAPH + self.sid).digest()
        return neighbours(seed, tuple(self.entries), self.config.degree)

    def encryption(self, client: int) -> tuple[int, bytes]:
        """A client with its public encryption key."""
        return client, self.entries[client].encryption_key

    def mask(self, client: int) -> tuple[int, bytes]:
        """A client with its public mask key."""
        return client, self.entries[client].mask_key

    def share_header(self, sender: int, receiver: int) -> bytes:
        """What is authenticated with an encrypted share: version, suite, session, round, phase, both ends."""
        header = Header(self.config.suite, Phase.SHARE, self.sid, self.round, sender)
        return header.pack() + struct.pack("<I", receiver)

    def among(self, client: int, others: Collection[int]) -> list[int]:
        """The neighbors of a client that are in a set, in ascending order."""
        return [neighbour for neighbour in self.neighbours[client] if neighbour in others]
