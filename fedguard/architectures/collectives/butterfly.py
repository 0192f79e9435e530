"""Butterfly all-reduce: node j sums part j (as in Gorbunov et al., ICML 2022)."""

from __future__ import annotations

from functools import cache

from fedguard.architectures.collectives.schedule import ChunkTransfer, Schedule


@cache
def butterfly(n: int) -> Schedule:
    """Each node sends part j of its vector to node j, which sends its aggregate of part j to all.

    Two steps, and $2 d (n - 1)/n$ elements a node if n divides d, as in a ring; but node j has part j of each vector.
    """
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    first = tuple(ChunkTransfer(i, j, j, True) for i, j in pairs)
    second = tuple(ChunkTransfer(j, i, j, False) for i, j in pairs)
    return Schedule(n, n, (first, second))
