"""Who continues if devices do not start together: slots for fewer devices than there are, or all devices in bounded steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedguard.rng import Rng
from fedguard.simulated.barriers import Barrier

#: Draws of slots made at once.
_BLOCK = 1024


class SlotScheduler:
    """Fewer devices work than there are: a device that is done gives its slot to a device drawn from the idle ones.

    Args:
        spent: whether a device no longer takes part.
    """

    def __init__(self, idle: Iterable[int], rng: Rng, spent: Callable[[int], bool]) -> None:
        self._idle, self._draw, self._spent = sorted(idle), rng.numpy(), spent
        self._drawn: list[float] = []

    def next_after_update(self, device: int) -> tuple[int, ...]:
        """Who starts after this device has sent."""
        return self.next_after_dropout(device)

    def next_after_dropout(self, device: int) -> tuple[int, ...]:
        """Who starts after this device has left: one device, or none if no idle device takes part any more."""
        idle = self._idle
        idle.append(device)
        while idle:
            if not self._drawn:
                self._drawn = self._draw.random(_BLOCK).tolist()
            chosen = int(self._drawn.pop() * len(idle))
            # Swapped to the end and popped: removal in constant time, and a uniform draw does not depend on the order
            idle[chosen], idle[-1] = idle[-1], idle[chosen]
            if not self._spent(one := idle.pop()):
                return (one,)
        return ()


class StalenessScheduler:
    """All devices work: each continues by itself, unless it is too far ahead of the slowest."""

    def __init__(self, barrier: Barrier, devices: int) -> None:
        self._barrier = barrier
        self._done = [0] * devices
        #: Number of trainings -> number of devices that have done them, and which of these devices wait for the slowest.
        #: Kept by number, so that an update costs the same however many devices there are.
        self._count = {0: devices}
        self._parked: dict[int, list[int]] = {}
        self._slowest = 0

    def next_after_update(self, device: int) -> list[int]:
        """Who starts after this device has sent."""
        self._done[device] = done = self._done[device] + 1
        self._count[done] = self._count.get(done, 0) + 1
        self._count[done - 1] -= 1
        go: list[int] = []
        if not self._count[done - 1]:
            del self._count[done - 1]
            if done - 1 == self._slowest:  # this device was the slowest, and alone
                # Nobody has done fewer, and this device has done exactly one more: no search for the new slowest is needed
                self._slowest = done
                free = [one for one in self._parked if self._barrier.may_start(one, done)]
                go = [waiting for one in free for waiting in self._parked.pop(one)]
        if self._barrier.may_start(done, self._slowest):
            go.append(device)
        else:
            self._parked.setdefault(done, []).append(device)
        return go

    def next_after_dropout(self, device: int) -> tuple[int, ...]:
        """Who starts after this device has left: the device itself, since it has not done this training."""
        return (device,)
