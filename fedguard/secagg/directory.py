"""Whose keys are whose: the public facts of a session once all keys are advertised."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from fedguard.secagg.codec import Header, Phase
from fedguard.secagg.graph import neighbours
from fedguard.secagg.messages import Advertise
from fedguard.secagg.session import Config

GRAPH = b"FedGuard/secagg/v1/graph"
ROSTER = b"FedGuard/secagg/v1/roster"


@dataclass(frozen=True)
class Directory:
    """Who advertised which keys in a session, and the graph that follows.

    Attributes:
        entries: by client id, in ascending order.
    """

    sid: bytes
    config: Config
    round: int
    entries: Mapping[int, Advertise]

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 over all entries: 32 bytes."""
        packed = (struct.pack("<I", client) + entry.body() for client, entry in self.entries.items())
        return hashlib.sha256(ROSTER + b"".join(packed)).digest()

    @cached_property
    def neighbours(self) -> Mapping[int, tuple[int, ...]]:
        """The neighbours of each client, in ascending order.

        The graph is drawn from the session id and all fresh keys, and so is known to nobody before the keys are.
        """
        seed = hashlib.sha256(GRAPH + self.sid + self.hash).digest()
        return neighbours(seed, tuple(self.entries), self.config.degree)

    def encryption(self, client: int) -> tuple[int, bytes]:
        """A client with its public encryption key."""
        return client, self.entries[client].encryption_key

    def mask(self, client: int) -> tuple[int, bytes]:
        """A client with its public mask key."""
        return client, self.entries[client].mask_key

    def share_header(self, sender: int, receiver: int) -> bytes:
        """What is authenticated with an encrypted share: version, suite, session, round, phase, both ends, all keys."""
        header = Header(self.config.suite, Phase.SHARE, self.sid, self.round, sender)
        return header.pack() + struct.pack("<I", receiver) + self.hash

    def among(self, client: int, others: Collection[int]) -> list[int]:
        """The neighbours of a client that are in a set, in ascending order."""
        return [neighbour for neighbour in self.neighbours[client] if neighbour in others]
