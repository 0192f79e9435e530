"""Hierarchical all-reduce, as Horovod has it (Sergeev and Del Balso, 2018)."""

from __future__ import annotations

from fedguard.architectures.collectives.ring import ring
from fedguard.architectures.collectives.schedule import ChunkTransfer, Schedule


def hierarchical(n: int, group: int) -> Schedule:
    """Reduce-scatter in a ring within each group of g, all-reduce across the G = n/g groups, all-gather within each group.

    Node i is number i modulo g of group floor(i / g). In its group it ends the first turn with one g-th of the group's sum;
    the nodes with the same g-th in all groups reduce it in their own ring. That is $2 (g - 1) + 2 (G - 1)$ steps instead of
    $2 (n - 1)$, with as many elements a node: $2 d (g - 1)/g + 2 (d/g) (G - 1)/G = 2 d (n - 1)/n$ if n divides d.

    Raises:
        ValueError: ``group`` does not divide n.
    """
    groups, rest = divmod(n, group)
    if rest:
        raise ValueError(f"{n} nodes cannot be dealt into groups of {group}")
    within, across = ring(group), ring(groups)
    # A g-th of the vector is cut into G chunks: chunk c of a ring within stands for chunks c G to c G + G - 1.
    inner = [
        tuple(
            ChunkTransfer(group * k + one.source, group * k + one.to, one.chunk * groups + part, one.adds)
            for k in range(groups)
            for one in step
            for part in range(groups)
        )
        for step in within.steps
    ]
    outer = [
        tuple(
            ChunkTransfer(group * one.source + i, group * one.to + i, (i + 1) % group * groups + one.chunk, one.adds)
            for i in range(group)
            for one in step
        )
        for step in across.steps
    ]
    turn = group - 1
    return Schedule(n, n, (*inner[:turn], *outer, *inner[turn:]))
