"""Schedules of messages, and their execution on the nodes' vectors.

A schedule is data: steps one after another, with all messages of a step at once. The same function executes it on floats, on
masked integers, and on symbols that show the composition of each message; bytes and seconds are counted from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol, Self, TypeVar


class Addable(Protocol):
    """Anything that can be summed: a tensor, an array, a symbol."""

    def __add__(self, other: Self, /) -> Self: ...


V = TypeVar("V", bound=Addable)


class ChunkTransfer(NamedTuple):
    """One chunk on its way.

    Attributes:
        adds: whether the receiver adds it to its own chunk; otherwise it replaces it. The state before the step is sent.
    """

    source: int
    to: int
    chunk: int
    adds: bool


@dataclass(frozen=True)
class Schedule:
    """Messages among n nodes with vectors that are cut into chunks of nearly equal size.

    Args:
        nodes: n.
        chunks: number of chunks of a vector.
        steps: messages of each step.
        sums: whether every node ends with the sum; otherwise every node ends with the vectors of all.
    """

    nodes: int
    chunks: int
    steps: tuple[tuple[ChunkTransfer, ...], ...]
    sums: bool = True

    @cached_property
    def by_chunk(self) -> tuple[tuple[tuple[ChunkTransfer, ...], ...], ...]:
        """The steps of each chunk: chunks are independent."""
        found: list[list[tuple[ChunkTransfer, ...]]] = [[] for _ in range(self.chunks)]
        for step in self.steps:
            apart: dict[int, list[ChunkTransfer]] = {}
            for message in step:
                apart.setdefault(message.chunk, []).append(message)
            for chunk, messages in apart.items():
                found[chunk].append(tuple(messages))
        return tuple(tuple(steps) for steps in found)

    def cuts(self, width: int) -> tuple[slice, ...]:
        """Cuts of a vector of ``width`` elements: sizes differ by one at most, the larger ones first."""
        size, larger = divmod(width, self.chunks)
        starts = [chunk * size + min(chunk, larger) for chunk in range(self.chunks + 1)]
        return tuple(slice(start, stop) for start, stop in pairwise(starts))

    def traffic(self, width: int) -> CollectiveCost:
        """Cost for each node of a vector of ``width`` elements."""
        sizes = [cut.stop - cut.start for cut in self.cuts(width)]
        sent, received = Counter[int](), Counter[int]()
        steps = []
        for step in self.steps:
            out, came = Counter[int](), Counter[int]()
            for message in step:
                out[message.source] += sizes[message.chunk]
                came[message.to] += sizes[message.chunk]
            steps.append((out, came))
            sent += out
            received += came
        every = range(self.nodes)
        return CollectiveCost(
            tuple(sent[node] for node in every), tuple(received[node] for node in every), tuple(steps)
        )


@dataclass(frozen=True)
class CollectiveCost:
    """Cost of a collective.

    Attributes:
        sent, received: elements, by node.
        steps: for each step, the elements that each node sends and gets in it.
    """

    sent: tuple[int, ...]
    received: tuple[int, ...]
    steps: tuple[tuple[Mapping[int, int], Mapping[int, int]], ...]


def simulate_chunk(
    schedule: Schedule,
    chunk: int,
    parts: Sequence[V],
    *,
    added: Mapping[int, V] | None = None,
    handed: Mapping[int, V] | None = None,
    on_message: Callable[[ChunkTransfer, V], None] | None = None,
) -> list[V]:
    """Final value of one chunk at each node.

    Args:
        parts: the chunk as each node holds it at the start; not changed.
        added: by node, what a malicious node adds to the first sum of others that it passes on.
        handed: by node, what a malicious node adds to each finished sum that it passes on.
        on_message: called with each message and its content.
    """
    held, due, holding = list(parts), dict(added or {}), set[int]()
    lies = handed or {}
    for step in schedule.by_chunk[chunk]:
        for source in {message.source for message in step} & holding & due.keys():
            held[source] = held[source] + due.pop(source)
        # All messages of a step leave before any arrives, so they are read before `held` changes
        sent = [(message, held[message.source]) for message in step]
        if lies:
            sent = [
                (one, value + lies[one.source] if one.source in lies and not one.adds else value) for one, value in sent
            ]
        for message, value in sent:
            if on_message is not None:
                on_message(message, value)
            held[message.to] = held[message.to] + value if message.adds else value
            holding |= {message.to} if message.adds else set()
    return held
