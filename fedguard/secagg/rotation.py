"""A randomized Hadamard rotation, which spreads a spike over all coordinates, so that one range fits them all.

    x -> H_m D x / sqrt(m),     H_1 = (1),  H_2m = ((H_m, H_m), (H_m, -H_m)),  D = random signs

m is a power of two and d seldom is. Padding to the next power of two would make the vector, its masks and its message up to
twice as long. Instead, m is the largest power of two up to d, and the rotation is applied twice with fresh signs: to the first
m coordinates, then to the last m. As 2m > d, the two windows cover all coordinates. Each rotation is orthonormal, so both
together are, and d stays d. A rotated coordinate is sub-Gaussian with variance at most |x|^2 / m over the signs.

The signs are public: a party that knows the session id can undo the rotation, and can choose its vector against it.

Source: Ailon and Chazelle 2006 (fast Johnson-Lindenstrauss), Suresh et al. 2017 (distributed mean estimation with
limited communication, section 3), Kairouz et al. 2021 (the distributed discrete Gaussian mechanism).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGNS = b"FedGuard/secagg/v1/rotation"


def rotate(vector: NDArray[np.floating[Any]], seed: bytes) -> NDArray[np.float64]:
    """float64 ``[d]``: the rotation of ``vector`` (floating ``[d]``, d >= 1) that belongs to ``seed``."""
    # float64 also for float32: log2(m) additions per coordinate would else cost more than the rounding to the ring
    rotated = vector.astype(np.float64)
    for window, signs in _turns(rotated.size, seed):
        rotated[window] = hadamard(rotated[window] * signs)
    return rotated


def rotate_back(rotated: NDArray[np.float64], seed: bytes) -> NDArray[np.float64]:
    """float64 ``[d]``: the inverse of `rotate`, exact up to float error."""
    vector = rotated.copy()
    # H_m / sqrt(m) is its own inverse: the same steps in reverse, each with the signs after the sum instead of before it
    for window, signs in reversed(_turns(vector.size, seed)):
        vector[window] = hadamard(vector[window]) * signs
    return vector


def hadamard(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 ``[m]``: ``H_m v`` for a power of two m, not normalized, in m log2(m) additions.

    H_m is the log2(m)-fold Kronecker product of H_2. Each step applies H_2 to the last bit of the index and moves it to the
    front; after log2(m) steps all bits are done and in order again. Each step is two sequential sweeps of additions and
    subtractions in a fixed order, so the result is the same to the last bit on every machine.
    """
    half, now = vector.size // 2, vector.copy()
    then = np.empty_like(now)
    for _ in range(vector.size.bit_length() - 1):
        np.add(now[0::2], now[1::2], out=then[:half])
        np.subtract(now[0::2], now[1::2], out=then[half:])
        now, then = then, now
    return now


def _turns(dim: int, seed: bytes) -> list[tuple[slice, NDArray[np.float64]]]:
    """The windows in order, each with its signs divided by sqrt(m): bits of SHAKE-256(label + seed)."""
    m = 1 << (dim.bit_length() - 1)
    windows = [slice(0, m)] if m == dim else [slice(0, m), slice(dim - m, dim)]
    count = m * len(windows)
    stream = hashlib.shake_256(_SIGNS + seed).digest((count + 7) // 8)
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=count).reshape(-1, m).astype(np.float64)
    return list(zip(windows, (1 - 2 * bits) / math.sqrt(m), strict=True))
