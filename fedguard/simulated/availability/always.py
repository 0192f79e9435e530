"""Devices that never leave."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fedguard.contracts import Availability, Presence
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class FullAvailability(Availability):
    """Every device is there all the time."""

    name = "always"
    may_leave = False

    def start(self, devices: int, rng: Rng) -> Presence:
        return _FullPresence()


class _FullPresence(Presence):
    def stretch(self, device: int, after: float) -> tuple[float, float]:
        return 0.0, inf

    def wait(self, device: int, now: float) -> float:
        return 0.0

    def leaves(self, device: int, now: float, seconds: float) -> float | None:
        return None
