"""Exact samples of log-concave laws on the integers, from random bits.

A law f has its mode at 0 and f(0) = 1. The integers on both sides of the mode are cut into blocks of 2^s; block v holds
``v 2^s <= y < (v + 1) 2^s`` and its mirror image ``-1 - y``. Fair bits propose a value with probability

    g(y) = 2^-v / 2^(s + 2)          (a sign, the run of coins that gives v, s bits for the place within the block)

which is accepted with probability ``f(y) 2^v / c``, where c bounds ``f(y) 2^v``. By log-concavity the largest value is at the
inner edge of a block. Accepted values have exactly the law f.

The last step compares a uniform number u with a probability p lazily: 64 bits of u and a float64 p decide unless u is within
a relative 2^-36 of p; then p is computed to as many digits, and u drawn to as many bits, as the decision needs. So the law is
exact if the error of log f in float64 is below 2^-40; it is below 2^-44. Nothing is cut off in the tails.

Random bits are AES-256 in counter mode under fresh keys from the entropy, one key for a block of proposals.

The time depends on the values, as with every rejection sampler: a timing side channel is not accounted for.

Source: rejection for discrete log-concave laws, Devroye 1987; dyadic blocks and lazy coins, Bringmann et al. 2014.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import keystream

Integers: TypeAlias = NDArray[np.int64]
Reals: TypeAlias = NDArray[np.float64]

#: float64 alone decides if u and p differ by more than this relative margin.
_MARGIN = 2.0**-36
#: Proposals at a time: their scratch stays within a core's cache.
_BLOCK = 1 << 15
_LOG2 = math.log(2)


class Law(Hashable, Protocol):
    """A log-concave law on the integers with its mode at 0, known up to a factor: ``f(0) = 1``."""

    def log_mass(self, y: Integers) -> Reals:
        """``log f(y)``, with an absolute error below 2^-40 wherever it is above -700; -inf where f is 0."""

    def mass(self, y: int, digits: int) -> Decimal:
        """``f(y)``, with a relative error below 10^-digits."""


def sample(law: Law, count: int, entropy: Entropy) -> Integers:
    """int64 ``[count]``: independent draws from ``law``."""
    s, log_c, tries = _envelope(law)
    drawn = np.empty(count, np.int64)
    filled = 0
    while filled < count:
        missing = count - filled
        # Surplus draws are dropped by their order, never by their value, so the law stays exact.
        kept = _accept_proposals(law, s, log_c, min(_BLOCK, 16 + int(tries * missing)), entropy)[:missing]
        drawn[filled : filled + len(kept)] = kept
        filled += len(kept)
    return drawn


@lru_cache(maxsize=64)
def _envelope(law: Law) -> tuple[int, float, float]:
    """The s with the fewest tries, its ``log c``, and the expected number of tries for one value."""
    v = np.arange(64)
    best = (0, math.inf, math.inf)
    for s in range(32):
        edges = v << s
        heights = np.maximum(law.log_mass(edges), law.log_mass(~edges)) + v * _LOG2
        log_c = float(heights.max()) + 1e-9  # for what float64 may be off
        # Heights are concave in v: once they fall, they fall for ever, and the largest one bounds all.
        if heights[-1] < heights.max() and s * _LOG2 + log_c < best[2]:
            best = (s, log_c, s * _LOG2 + log_c)
    s, log_c, cost = best
    mass = float(np.exp(law.log_mass(np.arange(-64, 64) << s)).sum()) * 2**s  # roughly the sum of f
    return s, log_c, 4 * math.exp(cost) / mass


def _accept_proposals(law: Law, s: int, log_c: float, tries: int, entropy: Entropy) -> Integers:
    """Accepted proposals, int64, at most ``tries`` of them."""
    places, coins, words = np.frombuffer(keystream(entropy(32), 24 * tries), "<u8").reshape(3, tries)
    v = _runs(coins, entropy)
    y = (v << s) + ((places >> np.uint64(1)) & np.uint64((1 << s) - 1)).view(np.int64)
    y ^= -(places & np.uint64(1)).view(np.int64)  # ~y = -1 - y where the sign is set
    chance = np.exp(law.log_mass(y) + (v * _LOG2 - log_c))
    u = words * 2.0**-64
    # u is known from below: the 64 bits leave an interval of 2^-64, and coins within the margin are settled exactly.
    keep = u + 2.0**-64 <= chance * (1 - _MARGIN)
    for i in np.flatnonzero(~keep & (u <= chance * (1 + _MARGIN))):
        keep[i] = _is_accepted(law, int(y[i]), int(v[i]), log_c, int(words[i]), entropy)
    return y[keep]


def _runs(coins: NDArray[np.uint64], entropy: Entropy) -> Integers:
    """Zeros before the first 1 in an endless sequence of fair bits, ``coins`` being the first 64: P[v] = 2^-(v + 1)."""
    v = np.bitwise_count(~coins & (coins - np.uint64(1))).astype(np.int64)
    # Once in 2^64; but cut off there the noise would be bounded, and values beyond the bound would tell neighbors apart.
    longer = np.flatnonzero(coins == 0)
    while len(longer):
        more = np.frombuffer(entropy(8 * len(longer)), "<u8")
        v[longer] += np.bitwise_count(~more & (more - np.uint64(1)))
        longer = longer[more == 0]
    return v


def _is_accepted(law: Law, y: int, v: int, log_c: float, word: int, entropy: Entropy) -> bool:
    """Whether u < p for a uniform u with the first 64 bits ``word``, and ``p = f(y) 2^v / c``."""
    bits, digits = 64, 40
    while True:
        with localcontext() as context:
            context.prec = digits + 20
            whole = law.mass(y, digits) * 2 ** (v + bits) / Decimal(log_c).exp()  # p in units of the last bit of u
            # Undecided while p lies within the interval of u; each round narrows both, so it ends with probability 1.
            slack = whole.scaleb(2 - digits)
            if word + 1 <= whole - slack:
                return True
            if word >= whole + slack:
                return False
        word = word << 64 | int.from_bytes(entropy(8), "little")
        bits, digits = bits + 64, digits + 20
