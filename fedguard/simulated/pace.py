"""Pace steering: devices are told when to come back, so that a server is neither overrun nor alone (Bonawitz et al., 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When a device comes back: in each of the next periods with a chance of 1 in ``slots``, in its first ``width`` seconds.

    Nobody keeps anything of a device: all are told the same law, and it has no memory, so that from the first period on about
    equally many come in each. Few devices are told to come at the same time, for else
    a round never finds enough of them; of many, each is told to come seldom.

    Attributes:
        period: seconds from the beginning of one slot to that of the next.
        slots: k, over how many of them the devices are spread: one comes back after k of them in the mean.
        width: seconds of a slot in which devices come.
    """

    period: float
    slots: int
    width: float

    @classmethod
    def of(cls, devices: int, goal: int, *, period: float, bound: float, margin: float = 2.0) -> Pace:
        """The pace of ``devices`` of which ``goal`` are to come in each period, and on average ``bound`` a second at most.

        $k = max(1, floor(devices / (margin * goal)), ceil(devices / (bound * period)))$ slots, with $devices / k$ expected
        in each, in its first $devices / (k * bound)$ seconds.

        Args:
            margin: how many times the goal come where there are enough: some will not be there, and numbers vary.

        Raises:
            ConfigError: ``margin * goal`` devices in a period are above the bound.
        """
        require(
            margin * goal <= bound * period,
            f"check_ins: {margin:g} times {goal} devices in {period:g} s are more than {bound:g} a second. Raise check_ins or "
            "selection, or lower clients.per_round.",
        )
        slots = max(1, math.floor(devices / (margin * goal)), math.ceil(devices / (bound * period) - 1e-9))
        return cls(period=period, slots=slots, width=min(period, devices / (slots * bound)))

    def next(self, now: float, which: float, where: float) -> float:
        """When one comes back that is told so ``now``: simulated seconds, later than now.

        Args:
            which, where: uniform on [0, 1): they draw how many slots are passed over, and the moment.
        """
        over = math.floor(math.log1p(-which) / math.log1p(-1 / self.slots)) if self.slots > 1 else 0
        return (math.floor(now / self.period) + 1 + over) * self.period + where * self.width
