"""Events in the order of simulated time. Events at the same time happen by rank, and within a rank in an order drawn from the
seed.

Ties are not broken by the devices' numbers: if all are equally fast and the first nine of ten count, the tenth would always
be the same device.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from fedguard.rng import Rng

#: Nanoseconds in a second. Times are whole numbers of them, so that equal sums are equal.
SECOND = 1_000_000_000

#: Draws of ties that are made at once.
_BLOCK = 4096


# An update that arrives exactly at the deadline counts, since DELIVER is before DECIDE; a device that starts at the time of
# an aggregate pulls the new model, since START is last
class Rank(IntEnum):
    """Order of events at the same time: arrivals, then ends, then decisions, then starts."""

    DELIVER = 0
    FINISH = 1
    DECIDE = 2
    START = 3


class EventQueue:
    """Queue of future events.

    Args:
        rng: draws the order of events with the same time and rank.
    """

    def __init__(self, rng: Rng) -> None:
        self._draw = rng.numpy()
        self._ties: list[float] = []
        self._events: list[tuple[int, int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._added = 0
        self._now = 0

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""
        return self._now / SECOND

    def __len__(self) -> int:
        return len(self._events)

    @property
    def happened(self) -> int:
        """Number of events that have happened."""
        return self._added - len(self._events)

    def after(self, delay: float, what: Callable[..., None], *arguments: Any, rank: Rank = Rank.FINISH) -> None:
        """Schedule ``what(*arguments)`` in ``delay`` seconds, at least 0."""
        if not self._ties:
            self._ties = self._draw.random(_BLOCK).tolist()
        self._added += 1
        time = self._now + round(delay * SECOND)
        # The running number makes every key unique, so that the heap never compares two callables
        heapq.heappush(self._events, (time, rank, self._ties.pop(), self._added, what, arguments))

    def step(self) -> bool:
        """Process the next event; False if there is none."""
        if not self._events:
            return False
        self._now, _, _, _, what, arguments = heapq.heappop(self._events)
        what(*arguments)
        return True
