"""Barriers: when a server aggregates, and who may continue meanwhile (BSP, k of n, SSP, ASP, buffers)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedguard.simulated.selectors import DeviceSelection


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """When updates are aggregated.

    Attributes:
        count: number of updates that are aggregated; all of a round if fewer devices are chosen.
        fresh: whether only updates trained from the current model count. Then all devices start together after each
            aggregate, and an update that comes later is late. Otherwise each device continues as soon as it has sent.
        ahead: tau, the number of trainings by which a device may be ahead of the slowest; infinity for no bound.
        deadline: seconds after which the updates that have arrived are enough, if there are at least ``least``; None for no
            deadline. For fresh updates only.
        least: fewest updates at the deadline; with fewer the round is abandoned.
        once: whether a device counts at most once in an aggregate; its other updates wait for the next aggregate.
        backups: if at most this number of updates of a round is awaited, each of their tasks starts a second time, see
            `fedguard.simulated.course.ServerSimulation`.
        selection: how a round of fresh updates finds its devices; None if chosen devices start as soon as they are online.
        buffers: number of buffers; device i sends to buffer i modulo this number. No buffer may be empty at an aggregate.
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
        """Number of updates aggregated if ``chosen`` devices are chosen: never more than can come."""
        # Poisson sampling may choose fewer than the count, which the server would await for ever; without rounds every device
        # sends again and again, so that any count is reached
        return min(self.count, chosen) if self.fresh else self.count

    def are_buffers_full(self, devices: Iterable[int]) -> bool:
        """Whether every buffer has an update of these devices."""
        return self.buffers == 1 or len({device % self.buffers for device in devices}) == self.buffers

    def may_start(self, done: int, slowest: int) -> bool:
        """Whether a device with ``done`` trainings may begin another, if the slowest device has done ``slowest``."""
        return done - slowest <= self.ahead


def bsp(n: int) -> Barrier:
    """Bulk synchronous parallel: all n updates, each trained from the current model."""
    return Barrier(count=n, fresh=True)


def k_of_n(k: int, deadline: float | None = None, least: int = 1) -> Barrier:
    """The first k updates; the others are late."""
    return Barrier(count=k, fresh=True, deadline=deadline, least=least)


def ssp(tau: int) -> Barrier:
    """Stale synchronous parallel, or bounded delay: each update counts at once, and no device is more than tau ahead."""
    return Barrier(count=1, fresh=False, ahead=tau)


def asp() -> Barrier:
    """Asynchronous parallel: each update counts at once, and nobody waits."""
    return Barrier(count=1, fresh=False)


def buffer_barrier(size: int) -> Barrier:
    """Buffered: every ``size`` updates are aggregated, and nobody waits."""
    return Barrier(count=size, fresh=False)


def covers(buffers: int) -> Barrier:
    """Aggregate as soon as each buffer holds an update; nobody waits."""
    return Barrier(count=buffers, fresh=False, buffers=buffers)
