"""Inputs in the form of an encoding, for attacks that need more than uniform ring elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import RingVector
from fedguard.secagg.session import SessionConfig


def draw_fixed_point(config: SessionConfig, entropy: Entropy, bits: int = 20) -> RingVector:
    """A ring vector of integers, uniform in [-2^(bits - 1), 2^(bits - 1)): sums of a few do not wrap around."""
    # The arithmetic shift of a uniform signed integer keeps its highest bits, and they stay uniform
    drawn = np.frombuffer(entropy(8 * config.length), "<i8") >> (64 - bits)
    return drawn.astype(config.dtype)


def looks_encoded(vector: RingVector, bits: int = 20) -> bool:
    """Whether these could be integers of ``bits`` bits: n uniform ring elements pass with probability 2^-(12 n) or less."""
    # Unsigned arithmetic wraps around, so that one comparison checks both ends of the interval
    return bool((vector + vector.dtype.type(2 ** (bits - 1)) < vector.dtype.type(2**bits)).all())


def to_signed_integers(vector: RingVector) -> NDArray[np.int64]:
    """Ring elements as whole numbers in two's complement."""
    return vector.view(f"i{vector.itemsize}").astype(np.int64)
