"""What malicious devices say of when they are there, and what a server that asks them takes for the truth."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AvailabilityLies:
    """Who lies of when it is there, and how.

    Attributes:
        acting: round (from 1) -> the devices that lie in it.
        checks_in: seconds from the beginning of a selection in which such a device was told to check in -> those in which it
            does, if it is there.
        reports: whether such a device reports. One that does not says that it is there whenever it is asked, and never sends.
    """

    acting: Callable[[int], Collection[int]]
    checks_in: Callable[[float], float]
    reports: bool

    def comes_in(self, device: int, round: int, told: float) -> float:
        """Seconds in which a device checks in that was told to do so in ``told``."""
        return self.checks_in(told) if device in self.acting(round) else told

    def stays_away(self, device: int, round: int) -> bool:
        """Whether a device only says that it is there."""
        return not self.reports and device in self.acting(round)


#: Nobody lies.
HONEST = AvailabilityLies(acting=lambda _: (), checks_in=lambda told: told, reports=True)
