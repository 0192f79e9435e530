"""What nodes of a collective can solve for, from the messages that reach them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedguard.architectures.collectives.schedule import ChunkTransfer, Schedule, simulate_chunk
from fedguard.privacy.determined import find_exposed_vectors


def trace_messages(
    schedule: Schedule, chunk: int, masked: bool = False
) -> Iterator[tuple[ChunkTransfer, NDArray[np.int64]]]:
    """Each message of a chunk with its composition: the coefficient of each node's own chunk.

    Under masks, a coefficient for each pair i < j of nodes follows: node i adds their mask, and node j subtracts it.
    """
    n = schedule.nodes
    pairs = list(combinations(range(n), 2)) if masked else []
    parts = np.zeros((n, n + len(pairs)), np.int64)
    parts[range(n), range(n)] = 1
    for column, (i, j) in enumerate(pairs, start=n):
        parts[i, column], parts[j, column] = 1, -1
    said: list[tuple[ChunkTransfer, NDArray[np.int64]]] = []
    simulate_chunk(schedule, chunk, list(parts), on_message=lambda message, value: said.append((message, value)))
    return iter(said)


def read_by(schedule: Schedule, readers: Collection[int], masked: bool = False) -> dict[int, Fraction]:
    """Share of its vector that the readers can solve for together, for each node with any such share.

    They know their own vectors and masks, and the messages sent to them. Shares are counted in chunks.
    """
    n, shares = schedule.nodes, dict[int, Fraction]()
    own = set(readers)
    if masked:
        own |= {n + k for k, pair in enumerate(combinations(range(n), 2)) if not own.isdisjoint(pair)}
    for chunk in range(schedule.chunks):
        messages = [row.tolist() for message, row in trace_messages(schedule, chunk, masked) if message.to in readers]
        for node in find_exposed_vectors(messages, own):
            if node < n:
                shares[node] = shares.get(node, Fraction(0)) + Fraction(1, schedule.chunks)
    return dict(sorted(shares.items()))
