"""When devices are there: laws and traces, each a class.

A law is one class with its parameters; in a training it makes a `Presence`, which answers for each device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from fedguard.contracts.algorithm import Algorithm
from fedguard.rng import Rng

#: Seconds that are no time at all: who comes so soon is there, and who leaves so soon is gone. Simulated time is rounded.
INSTANT = 1e-6


class Presence(ABC):
    """When the devices of one training are there."""

    @abstractmethod
    def stretch(self, device: int, after: float) -> tuple[float, float]:
        """Begin and end, in seconds, of the first time that the device is there and that ends later than ``after``.

        It may have begun before ``after``; the end may be infinity, and so may both, of a device that never comes again.
        It follows from the seed and the device alone, whoever else is asked for, and costs little where ``after`` only
        grows.
        """

    def wait(self, device: int, now: float) -> float:
        """Seconds until a device is there: 0 if it is there now, infinity if it never comes."""
        begin, _ = self.stretch(device, now + INSTANT)
        return begin - now if begin - now >= INSTANT else 0.0

    def leaves(self, device: int, now: float, seconds: float) -> float | None:
        """Seconds until a device leaves, if that is in the next ``seconds``; None if it stays. 0 for one that is away."""
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
        """See to it that it tells of so many devices.

        Raises:
            ConfigError: it does not.
        """

    @property
    def digest(self) -> str | None:
        """Of a file that it is read from; None without one."""
        return None

    @abstractmethod
    def start(self, devices: int, rng: Rng) -> Presence:
        """When so many devices are there in one training. What ``rng`` draws for one does not depend on the others."""


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
