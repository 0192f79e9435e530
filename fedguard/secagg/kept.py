"""A client between two messages, as bytes: for nodes whose process ends with each answer.

They are sealed under a key that only the owner of the client's long-term identity can derive, and bound to the round, the
place, the model and the roster. Whoever keeps them answers for one thing that no seal can: that a client never goes on from the
same state twice, for it would say twice what the protocol lets it say once. `fedguard.flower.keeping` sees to that.

    body = state u8, proposal, sid, configuration, secrets, directory, shared, included, shares held
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedguard.secagg.codec import SHARE_BYTES, Reader, UnreadableMessage, pack_clients, pack_many
from fedguard.secagg.entropy import Entropy, system
from fedguard.secagg.messages import KeyAdvertisement
from fedguard.secagg.transitions import ClientState

#: The states between two messages of a session, in the order of their bytes.
BETWEEN = (ClientState.ADVERTISED, ClientState.SHARED, ClientState.MASKED, ClientState.ATTESTED)
_NONCE_BYTES = 12


@dataclass(frozen=True)
class ClientCheckpoint:
    """What a client holds between two messages.

    Attributes:
        state: one of `BETWEEN`.
        proposal, sid: 32 bytes; ``sid`` is empty before the roster.
        config: canonical (`Config.pack`).
        secrets: encryption key, mask key and self-mask seed, 32 bytes each; none once the input is masked.
        entries: everybody's fresh keys; empty before the roster.
        shared, included: U2 and U3, as far as they were told.
        held: by neighbor, its shares of the seed and of the mask key, 33 bytes each.
    """

    state: ClientState
    proposal: bytes
    sid: bytes
    config: bytes
    secrets: tuple[bytes, ...]
    entries: Mapping[int, KeyAdvertisement]
    shared: frozenset[int]
    included: frozenset[int]
    held: Mapping[int, tuple[bytes, bytes]]

    def pack(self) -> bytes:
        """The one form of it."""
        entries = [_number(client) + entry.body() for client, entry in sorted(self.entries.items())]
        held = [_number(owner) + b"".join(shares) for owner, shares in sorted(self.held.items())]
        return b"".join(
            [
                bytes([BETWEEN.index(self.state)]),
                *(_number(len(part)) + part for part in (self.proposal, self.sid, self.config)),
                pack_many(self.secrets),
                pack_many(entries),
                pack_clients(self.shared),
                pack_clients(self.included),
                pack_many(held),
            ]
        )

    @classmethod
    def unpack(cls, data: bytes) -> ClientCheckpoint:
        """The inverse. Raises `UnreadableMessage`."""
        reader = Reader(memoryview(data))
        (state,) = reader.take(1)
        if state >= len(BETWEEN):
            raise UnreadableMessage(f"state {state} is unknown")
        proposal, sid, config = (reader.take(reader.number()) for _ in range(3))
        secrets = reader.many(32)
        entries = {}
        for one in reader.many(4 + KeyAdvertisement.BYTES):
            part = Reader(memoryview(one))
            client = part.number()
            entries[client] = KeyAdvertisement.read(part)
        shared, included = reader.clients(), reader.clients()
        held = {}
        for one in reader.many(4 + 2 * SHARE_BYTES):
            part = Reader(memoryview(one))
            owner = part.number()
            held[owner] = part.take(SHARE_BYTES), part.take(SHARE_BYTES)
        reader.end()
        return cls(BETWEEN[state], proposal, sid, config, secrets, entries, shared, included, held)


def seal(key: bytes, plain: bytes, bound: bytes, entropy: Entropy = system) -> bytes:
    """AES-256-GCM under a nonce of 12 random bytes, which come first; 28 bytes longer than ``plain``."""
    nonce = entropy(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, bound)


def unseal(key: bytes, sealed: bytes, bound: bytes) -> bytes:
    """The inverse.

    Raises:
        Unreadable: it was altered, or belongs to another identity, round, place, model or roster.
    """
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
    except (InvalidTag, ValueError):
        raise UnreadableMessage("what was kept of this client was altered, or is another client's or round's") from None


def _number(value: int) -> bytes:
    return struct.pack("<I", value)
