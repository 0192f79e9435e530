"""Pace steering: the server assigns check-in times, so that it gets a steady number (Bonawitz et al., 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When a device comes back: in each of the next periods with probability 1 in ``slots``, in its first ``width`` seconds.

    The server keeps no state of a device. All devices get the same memoryless distribution, so that about the same number
    comes in each period from the first one on. A small population is sent to the same slot, since a round would otherwise
    never find enough devices; in a large population each device comes seldom.

    Attributes:
        period: seconds from the start of one slot to the start of the next.
        slots: k, the number of slots over which devices are spread: a device comes back after k slots on average.
        width: seconds at the start of a slot in which devices come.
    """

    period: float
    slots: int
    width: float

    @classmethod
    def of(cls, devices: int, goal: int, *, period: float, bound: float, margin: float = 2.0) -> Pace:
        """The pace at which ``goal`` of ``devices`` come in each period, and on average at most ``bound`` a second.

        $k = max(1, floor(devices / (margin * goal)), ceil(devices / (bound * period)))$ slots, with $devices / k$ expected
        in each, in its first $devices / (k * bound)$ seconds.

        Args:
            margin: multiple of the goal that comes if there are enough devices: some will be offline, and numbers vary.

        Raises:
            ConfigError: ``margin * goal`` devices in a period exceed the bound.
        """
        require(
            margin * goal <= bound * period,
            f"check_ins: {margin:g} times {goal} devices in {period:g} s are more than {bound:g} a second. Raise check_ins or "
            "selection, or lower clients.per_round.",
        )
        # Rounded up, as the bound must hold; a quotient that is whole but for rounding must not cost a further slot
        slots = max(1, math.floor(devices / (margin * goal)), math.ceil(devices / (bound * period) - 1e-9))
        return cls(period=period, slots=slots, width=min(period, devices / (slots * bound)))

    def next(self, now: float, which: float, where: float) -> float:
        """Simulated time at which a device comes back that asks at ``now``; later than now.

        Args:
            which, where: uniform on [0, 1): they determine the number of slots skipped, and the moment in the slot.
        """
        # Inverse of the geometric distribution; log1p, since 1 - 1/slots loses the digits of 1/slots where there are many slots
        over = math.floor(math.log1p(-which) / math.log1p(-1 / self.slots)) if self.slots > 1 else 0
        return (math.floor(now / self.period) + 1 + over) * self.period + where * self.width
