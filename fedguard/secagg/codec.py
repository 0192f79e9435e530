"""The parts of a message as bytes: headers, sets of clients, counted lists; one form for each.

    header = version u8, suite u8, phase u8, sid 32, round u32, sender u32       all little-endian

where sid identifies the proposal up to the roster of fresh keys, and the session (`Directory.sid`) from then on.

Sets of clients are sent as bit maps over the roster: no order, no duplicates.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Collection
from dataclasses import dataclass

from fedguard.secagg.session import VERSION

#: The sender of a server's message.
SERVER = 2**32 - 1
SIGNATURE_BYTES = 64
#: A share is an integer below 2^256 + 297.
SHARE_BYTES = 33
_HEADER = struct.Struct("<BBB32sII")
HEADER_BYTES = _HEADER.size


class Phase(enum.IntEnum):
    """The messages in the order of a round: the server sends the odd ones, clients the even ones."""

    HELLO = 1
    ADVERTISE = 2
    ROSTER = 3
    SHARE = 4
    SHARES = 5
    MASKED = 6
    SURVIVORS = 7
    ATTEST = 8
    QUORUM = 9
    UNMASK = 10


_PHASES = frozenset(map(int, Phase))

#: Public names of the steps: a client that drops out at a step sends neither this message nor a later one.
STEPS = {
    "advertise_keys": Phase.ADVERTISE,
    "share_keys": Phase.SHARE,
    "masked_input": Phase.MASKED,
    "consistency": Phase.ATTEST,
    "unmask": Phase.UNMASK,
}


class UnreadableMessage(Exception):
    """Bytes that are no message; the parties raise it as `MalformedMessage`."""


@dataclass(frozen=True)
class Header:
    """The start of every message."""

    suite: int
    phase: Phase
    sid: bytes
    round: int
    sender: int

    def pack(self) -> bytes:
        return _HEADER.pack(VERSION, self.suite, self.phase, self.sid, self.round, self.sender)


class Reader:
    """Reads a body piece by piece."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        return bytes(self.view(count))

    def view(self, count: int) -> memoryview:
        if count > len(self._data) - self._at:
            raise UnreadableMessage(f"expected {count} more bytes; got {len(self._data) - self._at}")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def many(self, size: int) -> tuple[bytes, ...]:
        """A counted list of pieces of equal size."""
        count = self.number()
        data = self.take(count * size) if count * size <= len(self._data) else self.take(len(self._data) + 1)
        return tuple(data[i : i + size] for i in range(0, len(data), size))

    def clients(self) -> frozenset[int]:
        data = self.take(self.number())
        # A last byte of zeros would be a second form of the same set, with another hash
        if data and not data[-1]:
            raise UnreadableMessage("a bit map that is not in its shortest form")
        return frozenset(8 * i + bit for i, byte in enumerate(data) if byte for bit in range(8) if byte >> bit & 1)

    def end(self) -> None:
        if self._at != len(self._data):
            raise UnreadableMessage(f"{len(self._data) - self._at} bytes too many")


def pack_many(pieces: Collection[bytes]) -> bytes:
    """A counted list of pieces of equal size."""
    return len(pieces).to_bytes(4, "little") + b"".join(pieces)


def pack_clients(clients: Collection[int]) -> bytes:
    """A bit map in its shortest form, with its length."""
    data = bytearray(clients_bytes(max(clients, default=-1) + 1))
    for client in clients:
        data[client // 8] |= 1 << client % 8
    return len(data).to_bytes(4, "little") + data


def clients_bytes(count: int) -> int:
    """Bytes of a bit map over ``count`` clients, without its length."""
    return (count + 7) // 8


def set_hash(clients: Collection[int]) -> bytes:
    """SHA-256 of a set of clients."""
    return hashlib.sha256(pack_clients(clients)).digest()


def read_header(data: bytes) -> Header:
    """The header alone. Raises `UnreadableMessage`."""
    if not isinstance(data, bytes):
        raise UnreadableMessage(f"expected bytes; got {type(data).__name__}")
    if len(data) < HEADER_BYTES:
        raise UnreadableMessage(f"expected at least {HEADER_BYTES} bytes; got {len(data)}")
    # Suite, sid, round and sender are for the parties to compare; here only what decides how the rest is read
    version, suite, number, sid, round, sender = _HEADER.unpack_from(data)
    if version != VERSION or number not in _PHASES:
        raise UnreadableMessage(f"version {version}, phase {number} is unknown; expected version {VERSION}")
    return Header(suite, Phase(number), sid, round, sender)
