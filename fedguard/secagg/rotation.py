"""A randomized Hadamard rotation: it spreads a spike evenly, so that one range fits all coordinates.

    x -> H_m D x / sqrt(m),     H_1 = (1),  H_2m = ((H_m, H_m), (H_m, -H_m)),  D = random signs

m is a power of two and d seldom is. Padding up to the next one would make the vector, its masks and its message up to
twice as long. So the largest m <= d is taken, and the rotation is done twice with fresh signs: over the first m
coordinates, then over the last m. As 2m > d, the two windows cover everything; each is orthonormal, so both together are,
and d stays d. A rotated coordinate is sub-Gaussian with variance at most |x|^2 / m over the signs.

The signs are public: whoever knows the session's id can undo the rotation, and can also aim at it.

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
    rotated = vector.astype(np.float64)
    for window, signs in _turns(rotated.size, seed):
        rotated[window] = hadamard(rotated[window] * signs)
    return rotated


def rotate_back(rotated: NDArray[np.float64], seed: bytes) -> NDArray[np.float64]:
    """float64 ``[d]``: the inverse of `rotate`, exact up to float error."""
    vector = rotated.copy()
    for window, signs in reversed(_turns(vector.size, seed)):
        vector[window] = hadamard(vector[window]) * signs
    return vector


def hadamard(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 ``[m]``: ``H_m v`` for a power of two m, not normalized, in m log2(m) additions.

    H_m is the log2(m)-fold Kronecker product of H_2. Each step applies H_2 to the last digit of the index and moves it to
    the front; after log2(m) steps all digits are done and in order again. All steps are two sequential sweeps, and only
    add, so that the result is the same to the last bit on every machine.
    """
    half, now = vector.size // 2, vector.copy()
    then = np.empty_like(now)
    for _ in range(vector.size.bit_length() - 1):
        np.add(now[0::2], now[1::2], out=then[:half])
        np.subtract(now[0::2], now[1::2], out=then[half:])
        now, then = then, now
    return now


def _turns(dim: int, seed: bytes) -> list[tuple[slice, NDArray[np.float64]]]:
    """The windows in their order, each with its signs over sqrt(m): bits of SHAKE-256(label + seed)."""
    m = 1 << (dim.bit_length() - 1)
    windows = [slice(0, m)] if m == dim else [slice(0, m), slice(dim - m, dim)]
    count = m * len(windows)
    stream = hashlib.shake_256(_SIGNS + seed).digest((count + 7) // 8)
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=count).reshape(-1, m).astype(np.float64)
    return list(zip(windows, (1 - 2 * bits) / math.sqrt(m), strict=True))
