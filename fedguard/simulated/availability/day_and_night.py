"""Devices that are there by night (Bonawitz et al., MLSys 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any

from annotated_types import Interval

from fedguard.contracts import Availability, Presence, Share
from fedguard.rng import Rng

_HOUR, _DAY = 3600.0, 86400.0


@dataclass(frozen=True, kw_only=True)
class DayAndNight(Availability):
    """Each device is there for some hours of each day.

    There are ``night`` such hours in a day of 24. The hours of device i begin at $t = u_i$ plus any number of days, with $u_i$
    uniform over ``spread`` hours; a night that begins before the start of the training may reach into it.

    Args:
        night: hours of each day that a device is there.
        spread: hours over which the nights begin: 0 for all at once, 24 for all around the clock.
        owls: share of the devices, those with the highest numbers, with nights that begin twelve hours later; None for none.
    """

    name = "day_and_night"
    source = "Bonawitz et al., Towards Federated Learning at Scale: System Design, MLSys 2019 (its section 9)"

    night: Annotated[float, Interval(ge=0.001, le=24)] = 8.0
    spread: Annotated[float, Interval(ge=0, le=24)] = 6.0
    owls: Share | None = None

    def spec(self) -> dict[str, Any]:
        return {key: value for key, value in super().spec().items() if value is not None}

    def start(self, devices: int, rng: Rng) -> Presence:
        return _DayAndNight(self, devices, rng)


class _DayAndNight(Presence):
    def __init__(self, law: DayAndNight, devices: int, rng: Rng) -> None:
        # Nights of 24 hours would touch, and a device would seem to leave at the end of each
        self._night = law.night * _HOUR if law.night < 24 else inf
        begins = rng.numpy().random(devices) * law.spread * _HOUR
        begins[devices - round((law.owls or 0.0) * devices) :] += _DAY / 2
        self._begins: list[float] = begins.tolist()

    def stretch(self, device: int, after: float) -> tuple[float, float]:
        first = self._begins[device]
        if self._night == inf:
            return -inf, inf
        # Floors to -1 before the first begin: the night of the day before may reach past the start
        day = (after - first) // _DAY
        if first + _DAY * day + self._night <= after:
            day += 1
        begin = first + _DAY * day
        return begin, begin + self._night
