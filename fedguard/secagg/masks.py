"""Masks: the keystream of AES in counter mode, added to a vector modulo 2^32 or 2^64.

    PRG(key) = AES_key(0) | AES_key(1) | AES_key(2) | ...        counters of 128 bits, big-endian

read as little-endian u32 or u64. With a key of 16 bytes it is AES-128 (suite 1), with 32 AES-256 (suite 2). The counter
starts at zero, which is safe only because a key makes one mask and is never used again.

GCM with a zero nonce encrypts with the same stream, from counter 2 on. Libraries implement it with wider instructions than
plain counter mode, so it can be twice as fast although it also computes an unused checksum; on other machines it is half as
fast. Each process times both once and uses the faster one. The bytes are the same.

Source: counter mode, NIST SP 800-38A (2001), section 6.5; GCM, NIST SP 800-38D (2007), section 7.1; masks from a PRG,
Bonawitz et al., CCS 2017, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from timeit import repeat
from typing import TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM
from numpy.typing import NDArray

from fedguard.errors import InputError

#: A flat vector of integers modulo 2^32 or 2^64.
RingVector: TypeAlias = NDArray[np.uint32] | NDArray[np.uint64]

_BLOCK = 3 << 16  # bytes: keystream, zeros and a piece of the vector together fit the second-level cache of a core
_HEAD = 32  # bytes: counters 0 and 1, which GCM uses for its hash key and its tag
_SHORT = 1 << 15  # bytes: below this, GCM does not recover its cost of setup


def keystream(key: bytes, count: int) -> bytes:
    """The first ``count`` bytes of PRG(key).

    Raises:
        InputError: a key that has neither 16 nor 32 bytes.
    """
    head, rest = _stream(key, count)
    return head[:count] + rest.update(bytes(max(count - _HEAD, 0)))


def add_mask(vector: RingVector, key: bytes, sign: int) -> None:
    """In place: vector += sign * PRG(key) mod 2^32 or 2^64, as the dtype says; see `add_masks`."""
    add_masks(vector, [(key, sign)])


def add_masks(vector: RingVector, keyed: Iterable[tuple[bytes, int]]) -> None:
    """In place: vector += sum of sign * PRG(key) over the pairs (key, sign), mod 2^32 or 2^64.

    Args:
        vector: uint32 or uint64 [d], contiguous and writable.
        keyed: keys of 16 or 32 bytes, each with +1 or -1.

    Raises:
        InputError: another vector, key or sign; the vector is as it was.
    """
    _add(vector, keyed, _BLOCK)


def _add(vector: RingVector, keyed: Iterable[tuple[bytes, int]], block: int) -> None:
    _check(vector)
    # All keys and signs are judged before the first addition, so that an error leaves the vector as it was
    masks = [(*_stream(key, vector.nbytes), _operation(sign)) for key, sign in keyed]
    little = vector.dtype.newbyteorder("<")
    part = vector[: _HEAD // vector.itemsize]
    for head, _, operation in masks:
        operation(part, np.frombuffer(head, little, len(part)), out=part)
    zeros, stream = memoryview(bytes(block)), memoryview(bytearray(block))
    words = np.frombuffer(stream, little)
    for start in range(_HEAD // vector.itemsize, len(vector), len(words)):
        part = vector[start : start + len(words)]
        mask, plain, cipher = words[: len(part)], zeros[: part.nbytes], stream[: part.nbytes]
        # All masks on one piece of the vector, then the next piece: the vector passes through memory once.
        for _, rest, operation in masks:
            rest.update_into(plain, cipher)
            operation(part, mask, out=part)


def _check(vector: RingVector) -> None:
    if not (isinstance(vector, np.ndarray) and vector.ndim == 1 and vector.dtype in (np.uint32, np.uint64)):
        got = f"{vector.dtype} {list(vector.shape)}" if isinstance(vector, np.ndarray) else type(vector).__name__
        raise InputError(f"A masked vector is a numpy array of uint32 or uint64 [d]; got {got}. Encode it first.")
    if not (vector.flags.c_contiguous and vector.flags.writeable):
        got = "a read-only one" if vector.flags.c_contiguous else "a strided one"
        raise InputError(f"Masks are added in place to a contiguous, writable vector; got {got}. Pass vector.copy().")


def _stream(key: bytes, count: int) -> tuple[bytes, CipherContext]:
    """The head of PRG(key), and the cipher that encrypts zeros to the rest of its first ``count`` bytes."""
    if len(key) not in (16, 32):
        raise InputError(f"A mask key has 16 bytes (AES-128) or 32 (AES-256); got {len(key)}. Derive it by HKDF.")
    counter = Cipher(AES(key), CTR(bytes(16))).encryptor()
    head = counter.update(bytes(_HEAD))
    gcm = count > _SHORT and _gcm_is_faster(len(key))
    return head, Cipher(AES(key), GCM(bytes(12))).encryptor() if gcm else counter


@cache
def _gcm_is_faster(size: int) -> bool:
    """Whether GCM beats counter mode here, for keys of ``size`` bytes. The measurement takes one or two milliseconds."""
    # The fastest of five: noise of the machine only adds time. A wrong choice costs speed, never a byte
    zeros, stream = bytes(_BLOCK), bytearray(_BLOCK)

    def seconds(mode: GCM | CTR) -> float:
        encryptor = Cipher(AES(bytes(size)), mode).encryptor()
        return min(repeat(lambda: encryptor.update_into(zeros, stream), number=1, repeat=5))

    return seconds(GCM(bytes(12))) < seconds(CTR(bytes(16)))


def _operation(sign: int) -> np.ufunc:
    if sign not in (1, -1):
        raise InputError(f"The sign of a mask is +1 or -1; got {sign}. Use + if the own id is the lower one.")
    return np.add if sign == 1 else np.subtract
