"""What malicious devices claim about their availability, and what the server takes for the truth."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AvailabilityLies:
    """Which devices lie about their availability, and how.

    Attributes:
        acting: round (from 1) -> the devices that lie in it.
        checks_in: check-in time that the server assigned to a lying device, in seconds from the start of the selection -> time
            at which the device checks in, if it is online.
        reports: whether a lying device reports. If not, it claims to be online whenever it is asked, and never sends.
    """

    acting: Callable[[int], Collection[int]]
    checks_in: Callable[[float], float]
    reports: bool

    def comes_in(self, device: int, round: int, told: float) -> float:
        """Seconds until a device checks in, if the server assigned ``told`` seconds."""
        return self.checks_in(told) if device in self.acting(round) else told

    def stays_away(self, device: int, round: int) -> bool:
        """Whether a device claims to be online and never sends."""
        return not self.reports and device in self.acting(round)


#: Nobody lies.
HONEST = AvailabilityLies(acting=lambda _: (), checks_in=lambda told: told, reports=True)
