"""All to all: every node sends its whole vector to every other (the naive all-reduce of Patarasu and Yuan, JPDC 2009)."""

from __future__ import annotations

from fedguard.architectures.collectives.schedule import ChunkTransfer, Schedule


def all_to_all(n: int) -> Schedule:
    """One step, in which each node sends $(n - 1) d$ elements and has the vectors of all at its end."""
    return Schedule(
        n, 1, (tuple(ChunkTransfer(i, j, 0, False) for i in range(n) for j in range(n) if i != j),), sums=False
    )
