"""The messages of a round and their canonical bytes.

    message = header | body | signature (64 bytes, clients only)
    signed  = label | header | digest of the body

`codec` has the parts. A server's messages are not signed: clients check its claims against what other clients have signed.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from typing import ClassVar, Self

from fedguard.secagg import merkle
from fedguard.secagg.codec import (
    HEADER_BYTES,
    SERVER,
    SHARE_BYTES,
    SIGNATURE_BYTES,
    Header,
    Phase,
    Reader,
    UnreadableMessage,
    clients_bytes,
    pack_clients,
    pack_many,
    read_header,
)
from fedguard.secagg.session import CONFIG_BYTES, SessionConfig

#: Hash of a masked vector, and the signature over it.
PROOF_BYTES = 32 + SIGNATURE_BYTES
_SIGNED = b"FedGuard/secagg/v2/signed"
#: A client with its four hashes and keys, and its signature.
_ENTRY = Struct(f"<I32s32s32s32s{SIGNATURE_BYTES}s")
#: A delivery but for its path: the owner, its packet, its commitment to b, its signature.
_DELIVERY = Struct(f"<I{2 * SHARE_BYTES + 16}s32s32s32s{SIGNATURE_BYTES}s")


def digest_masked_input(shared_hash: bytes, vector_hash: bytes) -> bytes:
    """The digest of a masked input, from the hash of its vector alone."""
    return hashlib.sha256(shared_hash + vector_hash).digest()


class Message:
    """Base of all messages."""

    phase: ClassVar[Phase]

    @abstractmethod
    def body(self) -> bytes:
        """The canonical bytes."""

    @classmethod
    @abstractmethod
    def read(cls, reader: Reader) -> Self:
        """The message in a body. Raises `UnreadableMessage`."""

    def digest(self) -> bytes:
        """The part of the signed content besides the header."""
        return hashlib.sha256(self.body()).digest()


@dataclass(frozen=True)
class Hello(Message):
    """Server, all: a session is proposed."""

    phase: ClassVar = Phase.HELLO
    config: bytes
    nonce: bytes

    def body(self) -> bytes:
        return self.config + self.nonce

    @classmethod
    def read(cls, reader: Reader) -> Self:
        return cls(reader.take(CONFIG_BYTES), reader.take(32))


@dataclass(frozen=True)
class KeyAdvertisement(Message):
    """R0, client: fresh public keys, and the hashes of its model and configuration."""

    phase: ClassVar = Phase.ADVERTISE
    BYTES: ClassVar = 128
    encryption_key: bytes
    mask_key: bytes
    model_hash: bytes
    config_hash: bytes

    def body(self) -> bytes:
        return self.encryption_key + self.mask_key + self.model_hash + self.config_hash

    @classmethod
    def read(cls, reader: Reader) -> Self:
        return cls(*(reader.take(32) for _ in range(4)))


@dataclass(frozen=True)
class KeyRoster(Message):
    """R0, server: what all clients advertised, with their signatures, in the order of ids."""

    phase: ClassVar = Phase.ROSTER
    entries: tuple[tuple[int, KeyAdvertisement, bytes], ...]

    def body(self) -> bytes:
        return pack_many([_id(client) + entry.body() + signature for client, entry, signature in self.entries])

    @classmethod
    def read(cls, reader: Reader) -> Self:
        entries = []
        for client, *entry, signature in map(_ENTRY.unpack, reader.many(_ENTRY.size)):
            entries.append((client, KeyAdvertisement(*entry), signature))
        # Ascending and distinct: two orders of one roster would have two session ids
        if [client for client, _, _ in entries] != sorted({client for client, _, _ in entries}):
            raise UnreadableMessage("entries that are not in ascending order")
        return cls(tuple(entries))


@dataclass(frozen=True)
class Packet:
    """Encrypted shares of one client for one neighbor, with commitments to the shares of b and of the mask key."""

    BYTES: ClassVar = 2 * SHARE_BYTES + 16 + 2 * 32
    cipher: bytes
    seed_share: bytes
    key_share: bytes

    def pack(self) -> bytes:
        return self.cipher + self.seed_share + self.key_share

    @classmethod
    def unpack(cls, data: bytes) -> Packet:
        return cls(data[:-64], data[-64:-32], data[-32:])

    def leaf(self, seed: bytes) -> bytes:
        """The leaf of the tree that its owner signs; ``seed`` is the owner's commitment to b."""
        # The commitment is part of it, so that the one signature covers it too
        return merkle.leaf(self.pack() + seed)


@dataclass(frozen=True)
class ShareSubmission(Message):
    """R1, client: a commitment to b, and a packet for each neighbor in the order of ids."""

    phase: ClassVar = Phase.SHARE
    seed: bytes
    packets: tuple[Packet, ...]

    def body(self) -> bytes:
        return self.seed + pack_many([packet.pack() for packet in self.packets])

    @classmethod
    def read(cls, reader: Reader) -> Self:
        return cls(reader.take(32), tuple(map(Packet.unpack, reader.many(Packet.BYTES))))

    def leaves(self) -> list[bytes]:
        """The leaves of the tree that has `digest` as its root."""
        return [packet.leaf(self.seed) for packet in self.packets]

    def digest(self) -> bytes:
        """The root of a tree over the packets, so that each neighbor can verify its own packet without the others."""
        return merkle.root(self.leaves())


@dataclass(frozen=True)
class Delivery:
    """One packet as the server forwards it: with its owner, the owner's commitment to b, the Merkle path, the signature."""

    owner: int
    packet: Packet
    seed: bytes
    path: tuple[bytes, ...]
    signature: bytes

    def pack(self) -> bytes:
        return _id(self.owner) + self.packet.pack() + self.seed + self.signature + pack_many(self.path)

    @classmethod
    def read(cls, reader: Reader) -> Delivery:
        owner, *packet, seed, signature = _DELIVERY.unpack(reader.view(_DELIVERY.size))
        return cls(owner, Packet(*packet), seed, reader.many(32), signature)


@dataclass(frozen=True)
class ShareDistribution(Message):
    """R1, server: U2, the clients that shared, and their packets for this client."""

    phase: ClassVar = Phase.SHARES
    shared: frozenset[int]
    deliveries: tuple[Delivery, ...]

    def body(self) -> bytes:
        packed = b"".join(delivery.pack() for delivery in self.deliveries)
        return pack_clients(self.shared) + _id(len(self.deliveries)) + packed

    @classmethod
    def read(cls, reader: Reader) -> Self:
        shared, count = reader.clients(), reader.number()
        return cls(shared, tuple(Delivery.read(reader) for _ in range(count)))


@dataclass(frozen=True)
class MaskedInput(Message):
    """R2, client: its masked input as little-endian ring elements, and the hash of the U2 that it was shown."""

    phase: ClassVar = Phase.MASKED
    shared_hash: bytes
    vector: bytes | memoryview

    def body(self) -> bytes:
        return b"".join((self.shared_hash, len(self.vector).to_bytes(8, "little"), self.vector))

    @cached_property
    def vector_hash(self) -> bytes:
        """SHA-256 of the vector."""
        return hashlib.sha256(self.vector).digest()

    def digest(self) -> bytes:
        """A hash of two hashes, so that a signature can be checked without the vector."""
        return digest_masked_input(self.shared_hash, self.vector_hash)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        shared_hash, count = reader.take(32), int.from_bytes(reader.take(8), "little")
        # A view, since the vector may have hundreds of megabytes and is added to the sum once
        return cls(shared_hash, reader.view(count))


@dataclass(frozen=True)
class Survivors(Message):
    """R2, server: U3, the clients that sent a masked input.

    For each neighbor of the receiver in U3, in the order of ids, it proves that the neighbor masked its input for the same U2:
    the hash of the neighbor's masked vector, and the neighbor's signature of the masked input.
    """

    phase: ClassVar = Phase.SURVIVORS
    included: frozenset[int]
    proofs: tuple[bytes, ...]

    def body(self) -> bytes:
        return pack_clients(self.included) + pack_many(self.proofs)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        return cls(reader.clients(), reader.many(PROOF_BYTES))


@dataclass(frozen=True)
class Attestation(Message):
    """R3, client: hashes of the U2 and U3 that it was shown."""

    phase: ClassVar = Phase.ATTEST
    shared_hash: bytes
    included_hash: bytes

    def body(self) -> bytes:
        return self.shared_hash + self.included_hash

    @classmethod
    def read(cls, reader: Reader) -> Self:
        return cls(reader.take(32), reader.take(32))


@dataclass(frozen=True)
class Quorum(Message):
    """R3, server: the clients that attested, and their signatures in the order of ids."""

    phase: ClassVar = Phase.QUORUM
    signers: frozenset[int]
    signatures: tuple[bytes, ...]

    def body(self) -> bytes:
        return pack_clients(self.signers) + pack_many(self.signatures)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        return cls(reader.clients(), reader.many(SIGNATURE_BYTES))


@dataclass(frozen=True)
class UnmaskingShares(Message):
    """R4, client: for each neighbor in U2, in the order of ids, one share.

    It is the share of b for a neighbor in U3, else the share of the mask key. The form cannot hold both.
    """

    phase: ClassVar = Phase.UNMASK
    shares: tuple[bytes, ...]

    def body(self) -> bytes:
        return pack_many(self.shares)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        return cls(reader.many(SHARE_BYTES))


_KINDS: dict[Phase, type[Message]] = {
    kind.phase: kind
    for kind in (
        Hello,
        KeyAdvertisement,
        KeyRoster,
        ShareSubmission,
        ShareDistribution,
        MaskedInput,
        Survivors,
        Attestation,
        Quorum,
        UnmaskingShares,
    )
}


@dataclass(frozen=True)
class ReceivedMessage:
    """A message with its header, and its signature where it has one."""

    header: Header
    message: Message
    signature: bytes


def signature_payload(header: Header, message: Message) -> bytes:
    """The bytes that a client signs."""
    return payload_from_digest(header, message.digest())


def payload_from_digest(header: Header, digest: bytes) -> bytes:
    """The bytes that a client signs, from the digest of the body alone."""
    # The header is signed as a whole: sender, phase, session and round cannot be exchanged under a true signature
    return _SIGNED + header.pack() + digest


def pack(header: Header, message: Message, signature: bytes = b"") -> bytes:
    """A whole message."""
    return b"".join((header.pack(), message.body(), signature))


def longest(phase: Phase, config: SessionConfig, clients: int) -> int:
    """The most bytes that are read of a message: twice the longest honest one.

    A message that is a little too long is thus read, and blames its sender.
    """
    # The Merkle path of one of `near` packets has at most near.bit_length() siblings
    near, signature = min(config.degree, clients - 1), SIGNATURE_BYTES
    some, one_packet = 4 + clients_bytes(clients), 4 + Packet.BYTES + 32 + signature + 4 + 32 * near.bit_length()
    body = {
        Phase.HELLO: CONFIG_BYTES + 32,
        Phase.ADVERTISE: KeyAdvertisement.BYTES,
        Phase.ROSTER: 4 + clients * (4 + KeyAdvertisement.BYTES + signature),
        Phase.SHARE: 32 + 4 + near * Packet.BYTES,
        Phase.SHARES: some + 4 + near * one_packet,
        Phase.MASKED: 32 + 8 + config.length * config.ring // 8,
        Phase.SURVIVORS: some + 4 + near * PROOF_BYTES,
        Phase.ATTEST: 2 * 32,
        Phase.QUORUM: some + 4 + clients * signature,
        Phase.UNMASK: 4 + near * SHARE_BYTES,
    }[phase]
    return 2 * (HEADER_BYTES + body + signature)


def unpack(data: bytes, most: int | None = None) -> ReceivedMessage:
    """The message in ``data``, read in time linear in its length.

    Args:
        most: the largest accepted length in bytes.

    Raises:
        UnreadableMessage: any other bytes; there is one form only.
    """
    # Views, not slices: a slice would copy the masked vector twice
    header, view = read_header(data), memoryview(data)
    if most is not None and len(view) > most:
        raise UnreadableMessage(f"expected at most {most} bytes of {header.phase.name}; got {len(view)}")
    end = len(view) - (0 if header.sender == SERVER else SIGNATURE_BYTES)
    if end < HEADER_BYTES:
        raise UnreadableMessage("no signature")
    reader = Reader(view[HEADER_BYTES:end])
    message = _KINDS[header.phase].read(reader)
    # Trailing bytes would travel unsigned, since the signature covers the body as it is packed again
    reader.end()
    return ReceivedMessage(header, message, bytes(view[end:]))


def _id(client: int) -> bytes:
    return client.to_bytes(4, "little")
