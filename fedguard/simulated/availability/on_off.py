"""Devices that come and go at random (Gilbert, 1960)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf
from typing import Annotated

from annotated_types import Ge

from fedguard.contracts import Availability, Presence
from fedguard.rng import Rng
from fedguard.simulated.draws import Draws, exponential


@dataclass(frozen=True, kw_only=True)
class OnOff(Availability):
    """Each device comes and goes at random, by itself.

    Each device is a Markov chain: online stretches are exponential with mean ``on``, gaps between them with mean ``off``. At
    the start the device is online with probability $on / (on + off)$, the long-run share of time online.

    Args:
        on: mean seconds that a device stays online.
        off: mean seconds that a device is offline.
    """

    name = "on_off"
    source = "Gilbert, Capacity of a Burst-Noise Channel, Bell System Technical Journal 1960 (two states)"

    on: Annotated[float, Ge(0.001)] = 600.0
    off: Annotated[float, Ge(0.001)] = 300.0

    def start(self, devices: int, rng: Rng) -> Presence:
        return _OnOff(self, rng)


class _OnOff(Presence):
    def __init__(self, law: OnOff, rng: Rng) -> None:
        self._law, self._draw = law, Draws(rng, exponential)
        #: Device -> end of the previous stretch, begin and end of the last stretch asked for, and number of draws used.
        self._last: dict[int, tuple[float, float, float, int]] = {}

    def stretch(self, device: int, after: float) -> tuple[float, float]:
        since, begin, end, drawn = self._last.get(device, (inf, inf, inf, 0))
        if after < since:  # never asked, or about the past: replayed from the start with the same draws
            since, begin, end, drawn = self._first(device)
        if end <= after:
            draw, on, off = self._draw, self._law.on, self._law.off
            while end <= after:
                since, begin = end, end + off * draw(device, drawn)
                end = begin + on * draw(device, drawn + 1)
                drawn += 2
        self._last[device] = since, begin, end, drawn
        return begin, end

    def _first(self, device: int) -> tuple[float, float, float, int]:
        """The first stretch; in a memoryless chain the rest of a stretch or gap is distributed as a whole one."""
        draw, on, off = self._draw, self._law.on, self._law.off
        there = exp(-draw(device, 0)) < on / (on + off)  # exp(-Exp(1)) is uniform on [0, 1]
        begin = 0.0 if there else off * draw(device, 1)
        return -inf, begin, begin + on * draw(device, 2), 3
