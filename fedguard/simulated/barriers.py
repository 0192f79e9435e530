"""When a server may aggregate what it has, and who may go on meanwhile: six words of the field in one record."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedguard.simulated.selectors import DeviceSelection


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """When updates are aggregated.

    Attributes:
        count: as soon as so many have arrived; or all, in a round for which fewer are chosen.
        fresh: whether only those count that were trained from the present model; then all start together after each
            aggregate, and who comes later is late. Else each goes on as soon as it has sent.
        ahead: tau: by how many trainings a device may be ahead of the slowest; infinity for any.
        deadline: seconds after which those that have arrived are enough, if they are ``least`` or more; None for none. It
            is for fresh updates alone.
        least: with fewer at the deadline, the round is abandoned.
        once: whether a device counts once in an aggregate at most; what else it sends waits for the next one.
        backups: when at most so many of a round are still awaited, each of these gets a second copy of its task, see
            `fedguard.simulated.course.ServerSimulation`.
        selection: how a round of fresh updates finds its devices; None where those that are chosen start when they are there.
        buffers: into how many the devices are dealt, device i into that of i modulo their number; none may be empty.
    """

    count: int
    fresh: bool
    ahead: float = math.inf
    deadline: float | None = None
    least: int = 1
    once: bool = False
    backups: int = 0
    selection: DeviceSelection | None = None
    buffers: int = 1

    def enough(self, chosen: int) -> int:
        """How many updates are aggregated where so many devices are chosen: never more than can come."""
        return min(self.count, chosen) if self.fresh else self.count

    def are_buffers_full(self, devices: Iterable[int]) -> bool:
        """Whether those that have sent fill every buffer."""
        return self.buffers == 1 or len({device % self.buffers for device in devices}) == self.buffers

    def may_start(self, done: int, slowest: int) -> bool:
        """Whether a device that has done so many trainings may begin another, where the slowest has done ``slowest``."""
        return done - slowest <= self.ahead


def bsp(n: int) -> Barrier:
    """Bulk synchronous parallel: all n, each from the present model."""
    return Barrier(count=n, fresh=True)


def k_of_n(k: int, deadline: float | None = None, least: int = 1) -> Barrier:
    """The first k; the others are late."""
    return Barrier(count=k, fresh=True, deadline=deadline, least=least)


def ssp(tau: int) -> Barrier:
    """Stale synchronous parallel, or bounded delay: each update counts at once, and nobody is more than tau ahead."""
    return Barrier(count=1, fresh=False, ahead=tau)


def asp() -> Barrier:
    """Asynchronous parallel: each update counts at once, and nobody waits."""
    return Barrier(count=1, fresh=False)


def buffer_barrier(size: int) -> Barrier:
    """Each ``size`` updates are aggregated, and nobody waits."""
    return Barrier(count=size, fresh=False)


def covers(buffers: int) -> Barrier:
    """As soon as each of so many buffers holds an update, and nobody waits."""
    return Barrier(count=buffers, fresh=False, buffers=buffers)
