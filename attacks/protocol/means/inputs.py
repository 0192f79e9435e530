"""Inputs as encodings make them, where an attack needs more than uniform ring elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import RingVector
from fedguard.secagg.session import SessionConfig


def draw_fixed_point(config: SessionConfig, entropy: Entropy, bits: int = 20) -> RingVector:
    """A ring vector of whole numbers that are uniform in [-2^(bits - 1), 2^(bits - 1)): far from the ring's end."""
    drawn = np.frombuffer(entropy(8 * config.length), "<i8") >> (64 - bits)
    return drawn.astype(config.dtype)


def looks_encoded(vector: RingVector, bits: int = 20) -> bool:
    """Whether these could be whole numbers of so many bits: of n uniform ring elements with a chance of 2^-(12 n) or less."""
    return bool((vector + vector.dtype.type(2 ** (bits - 1)) < vector.dtype.type(2**bits)).all())


def to_signed_integers(vector: RingVector) -> NDArray[np.int64]:
    """Ring elements as whole numbers in two's complement."""
    return vector.view(f"i{vector.itemsize}").astype(np.int64)
