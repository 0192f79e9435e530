"""State of a client between two messages, as bytes: for nodes that end their process after each answer.

The bytes are sealed under a key that only the owner of the client's long-term identity can derive, and bound to the round, the
index in the roster, the model and the roster. No seal can prevent a rollback, so the caller must guarantee that a client never
resumes twice from the same state: it would answer twice where the protocol allows one answer. `fedguard.bridges.flower.keeping`
does.

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
        config: canonical bytes (`SessionConfig.pack`).
        secrets: encryption key, mask key and self-mask seed, 32 bytes each; empty once the input is masked.
        entries: fresh keys by client; empty before the roster.
        shared, included: U2 and U3; empty until the server has sent them.
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
        """The canonical bytes of the checkpoint."""
        # Identity, policy and input are not in it: the new process brings its own, and the seal opens under one identity alone
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
        """The inverse of `pack`. Raises `UnreadableMessage`."""
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
    # Random, not zero as for shares: one key seals all states of all rounds of an identity
    nonce = entropy(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, bound)


def unseal(key: bytes, sealed: bytes, bound: bytes) -> bytes:
    """The inverse of `seal`.

    Raises:
        UnreadableMessage: it was altered, or belongs to another identity, round, index, model or roster.
    """
    # ValueError: fewer bytes than a nonce or a tag
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
    except (InvalidTag, ValueError):
        raise UnreadableMessage("what was kept of this client was altered, or is another client's or round's") from None


def _number(value: int) -> bytes:
    return struct.pack("<I", value)
