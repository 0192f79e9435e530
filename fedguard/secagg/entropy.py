"""The source of secrets: the operating system, unless a test vector injects its own bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

#: Maps a count to as many random bytes.
Entropy = Callable[[int], bytes]

system: Entropy = os.urandom


def expand_seed(seed: bytes) -> Entropy:
    """An endless stream of bytes from ``seed``: SHAKE-256 of seed and call number.

    For test vectors, and for rounding and noise in experiments that must repeat; never for the keys of a deployment.
    """
    calls = 0

    def draw(count: int) -> bytes:
        nonlocal calls
        calls += 1  # a call's number is hashed, so that two draws never overlap whatever their lengths are
        return hashlib.shake_256(seed + calls.to_bytes(8, "little")).digest(count)

    return draw
