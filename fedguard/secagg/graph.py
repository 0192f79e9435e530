"""The graph of masks and shares: a ring in random order, each client joined to its nearest on both sides.

Bell, Bonawitz, Gascón, Lepoint and Raykova, "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from types import MappingProxyType

from fedguard.errors import require

SEED_BYTES = 32
_LABEL = b"FedGuard/secagg/v1/ring"


def neighbors(seed: bytes, members: Sequence[int], degree: int) -> Mapping[int, tuple[int, ...]]:
    """The neighbors of every member, in ascending order; a function of the seed, so all parties compute the same graph.

    The members are put on a ring in an order drawn uniformly from ``seed``. Each is joined to the degree / 2 before it and the
    degree / 2 after it, or to all others if ``degree`` is at least their number.

    Args:
        seed: 32 bytes that no party can choose.
        members: distinct ids; their order does not matter.
        degree: even, unless the graph is complete.

    Raises:
        ConfigError: a seed of another length, a member twice, an odd degree or one below 2.
    """
    return _neighbors(bytes(seed), tuple(sorted(members)), degree)


@lru_cache(maxsize=16)
def _neighbors(seed: bytes, members: tuple[int, ...], degree: int) -> Mapping[int, tuple[int, ...]]:
    """The graph, cached: every client of a simulation asks for the same one, and it is public."""
    require(len(seed) == SEED_BYTES, f"The graph needs a seed of {SEED_BYTES} bytes; got {len(seed)}.")
    n = len(members)
    require(len(set(members)) == n, "The graph needs distinct members; one is listed twice.")
    if degree >= n - 1:
        return MappingProxyType({u: members[:i] + members[i + 1 :] for i, u in enumerate(members)})
    require(
        degree >= 2 and degree % 2 == 0,
        f"A ring of {n} members needs an even degree of at least 2; got {degree}. Use an even one, or {n - 1} for all.",
    )
    ring, half = _shuffle_members(seed, members), degree // 2
    # The ring with its ends repeated, so that the windows of the first and last members need no modulus
    around = ring[-half:] + ring + ring[:half]
    edges = {u: tuple(sorted(around[i : i + half] + around[i + half + 1 : i + degree + 1])) for i, u in enumerate(ring)}
    # Read-only, since all callers share the cached object
    return MappingProxyType({u: edges[u] for u in members})


def _shuffle_members(seed: bytes, members: Sequence[int]) -> list[int]:
    """A uniformly random order of the members (Fisher and Yates)."""
    # The bounds in `parameters` count orders as equally likely, and all versions must draw the same one: no library generator
    words = _words(seed)
    ring = list(members)
    for i in range(len(ring) - 1, 0, -1):
        j = _below(i + 1, words)
        ring[i], ring[j] = ring[j], ring[i]
    return ring


def _below(bound: int, words: Iterator[int]) -> int:
    """A uniform integer in [0, bound), by rejection: words in the incomplete last multiple of ``bound`` are discarded."""
    unbiased = 2**64 // bound * bound
    return next(word for word in words if word < unbiased) % bound


def _words(seed: bytes) -> Iterator[int]:
    """An endless stream of 64-bit words: SHAKE-256(label, seed, block number), 512 words a block, little-endian."""
    for block in count():
        stream = hashlib.shake_256(_LABEL + seed + block.to_bytes(8, "little")).digest(8 * 512)
        for i in range(0, len(stream), 8):
            yield int.from_bytes(stream[i : i + 8], "little")
