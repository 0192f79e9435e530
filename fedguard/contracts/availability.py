"""Availability of devices: distributions and traces, each a class.

A law is one class with its parameters. In a training it makes a `Presence`, which answers for each device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fedguard.contracts.algorithm import Algorithm
from fedguard.rng import Rng

#: Intervals below this many seconds count as none, because simulated time is rounded
INSTANT = 1e-6


class Presence(ABC):
    """The online intervals of the devices of one training."""

    @abstractmethod
    def stretch(self, device: int, after: float) -> tuple[float, float]:
        """Begin and end, in seconds, of the first online interval of the device that ends later than ``after``.

        It may have begun before ``after``. The end may be infinity, and so may both for a device that never comes back. The
        interval depends on the seed and the device only, whatever other devices are queried. Queries are cheap if ``after``
        only grows.
        """

    def wait(self, device: int, now: float) -> float:
        """Seconds until a device is online: 0 if it is now, infinity if it never is again."""
        begin, _ = self.stretch(device, now + INSTANT)
        return begin - now if begin - now >= INSTANT else 0.0

    def leaves(self, device: int, now: float, seconds: float) -> float | None:
        """Seconds until a device goes offline, if within ``seconds``; None if it stays online, 0 if it is offline."""
        begin, end = self.stretch(device, now + INSTANT)
        if begin - now >= INSTANT:
            return 0.0
        return None if now + seconds <= end else end - now


class Availability(Algorithm):
    """A law by which devices come and go, with its parameters; $t$ counts simulated seconds from the start."""

    kind: ClassVar[str] = "availability"
    #: Whether a device may leave before its update has arrived.
    may_leave: ClassVar[bool] = True

    def check(self, devices: int) -> None:
        """Check that it describes this number of devices.

        Raises:
            ConfigError: it does not.
        """

    @property
    def digest(self) -> str | None:
        """Digest of the file that it is read from; None without a file."""
        return None

    @abstractmethod
    def start(self, devices: int, rng: Rng) -> Presence:
        """The online intervals of ``devices`` devices in one training. The draws for one do not depend on the others."""
