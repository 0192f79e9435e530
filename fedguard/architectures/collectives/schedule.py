"""A schedule of messages, and what it makes of the nodes' vectors.

A schedule is data: steps one after another, the messages of a step all at once. The same few lines carry it out on floats, on
masked integers, and on symbols, which tell what each message is made of; and its bytes and seconds are counted from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol, Self, TypeVar


class Addable(Protocol):
    """What can be summed: a tensor, an array, a symbol."""

    def __add__(self, other: Self, /) -> Self: ...


V = TypeVar("V", bound=Addable)


class ChunkTransfer(NamedTuple):
    """One chunk on its way.

    Attributes:
        adds: whether the receiver adds it to its own chunk; else it takes it over. It is sent as it stood before the step.
    """

    source: int
    to: int
    chunk: int
    adds: bool


@dataclass(frozen=True)
class Schedule:
    """Messages among n nodes, whose vectors are cut into chunks of nearly equal size.

    Args:
        nodes: n.
        chunks: into how many a vector is cut.
        steps: the messages of each step.
        sums: whether every node ends with the sum; else every node ends with the vectors of all.
    """

    nodes: int
    chunks: int
    steps: tuple[tuple[ChunkTransfer, ...], ...]
    sums: bool = True

    @cached_property
    def by_chunk(self) -> tuple[tuple[tuple[ChunkTransfer, ...], ...], ...]:
        """For each chunk its steps: chunks have nothing to do with each other."""
        found: list[list[tuple[ChunkTransfer, ...]]] = [[] for _ in range(self.chunks)]
        for step in self.steps:
            apart: dict[int, list[ChunkTransfer]] = {}
            for message in step:
                apart.setdefault(message.chunk, []).append(message)
            for chunk, messages in apart.items():
                found[chunk].append(tuple(messages))
        return tuple(tuple(steps) for steps in found)

    def cuts(self, width: int) -> tuple[slice, ...]:
        """Where a vector of so many elements is cut: sizes differ by one at most, the larger ones first."""
        size, larger = divmod(width, self.chunks)
        starts = [chunk * size + min(chunk, larger) for chunk in range(self.chunks + 1)]
        return tuple(slice(start, stop) for start, stop in pairwise(starts))

    def traffic(self, width: int) -> CollectiveCost:
        """What a vector of so many elements costs each node."""
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
    """What a collective costs.

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
    heard: Callable[[ChunkTransfer, V], None] | None = None,
) -> list[V]:
    """What each node ends with of one chunk.

    Args:
        parts: the chunk as each node holds it at the beginning; they are left as they are.
        added: by node, what a malicious one adds to the first sum of others that it passes on.
        handed: by node, what a malicious one adds to each finished sum that it hands on.
        heard: is told each message and what was in it.
    """
    held, due, holding = list(parts), dict(added or {}), set[int]()
    lies = handed or {}
    for step in schedule.by_chunk[chunk]:
        for source in {message.source for message in step} & holding & due.keys():
            held[source] = held[source] + due.pop(source)
        sent = [(message, held[message.source]) for message in step]
        if lies:
            sent = [
                (one, value + lies[one.source] if one.source in lies and not one.adds else value) for one, value in sent
            ]
        for message, value in sent:
            if heard is not None:
                heard(message, value)
            held[message.to] = held[message.to] + value if message.adds else value
            holding |= {message.to} if message.adds else set()
    return held
