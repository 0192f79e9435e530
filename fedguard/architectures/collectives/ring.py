"""Ring all-reduce (Patarasu and Yuan, JPDC 2009; Horovod, Sergeev and Del Balso, 2018)."""

from __future__ import annotations

from fedguard.architectures.collectives.schedule import ChunkTransfer, Schedule


def ring(n: int) -> Schedule:
    """Reduce-scatter, then all-gather: 2 (n - 1) steps, in each of which every node sends one chunk to the next.

    In step s of the first turn node i sends chunk i - s, to which node i + 1 adds its own; then node i - 1 has all of chunk i.
    In step s of the second it passes on chunk i + 1 - s as it is. So chunk c is summed in the order c, c + 1, ..., c - 1, and
    node i sends all chunks twice, except chunks i + 1 and i + 2 once: $2 d (n - 1)/n$ elements if n divides d.
    """
    first = [[ChunkTransfer(i, (i + 1) % n, (i - s) % n, True) for i in range(n)] for s in range(n - 1)]
    second = [[ChunkTransfer(i, (i + 1) % n, (i + 1 - s) % n, False) for i in range(n)] for s in range(n - 1)]
    return Schedule(n, n, tuple(map(tuple, first + second)))
