"""Reduce, then broadcast: one node adds up, and passes the sum on (the baseline of Patarasu and Yuan, JPDC 2009)."""

from __future__ import annotations

from fedguard.architectures.collectives.schedule import ChunkTransfer, Schedule


def reduce_broadcast(n: int) -> Schedule:
    """All send their vector to node 0, which adds them up in the order of their numbers and sends the sum to each.

    Two steps. The root receives and sends $(n - 1) d$ elements, each other node d.
    """
    leaves = range(1, n)
    first = tuple(ChunkTransfer(i, 0, 0, True) for i in leaves)
    second = tuple(ChunkTransfer(0, i, 0, False) for i in leaves)
    return Schedule(n, 1, (first, second) if n > 1 else ())
