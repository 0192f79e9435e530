"""Selectors: the devices of a round are found among those that check in (Bonawitz et al., MLSys 2019, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from fedguard.contracts.channels import CHECK_IN, PROMISES
from fedguard.contracts.lying import Report, report_truth
from fedguard.rng import Rng
from fedguard.simulated.agenda import EventQueue, Rank
from fedguard.simulated.draws import Draws, uniform
from fedguard.simulated.pace import Pace
from fedguard.simulated.world import World


@dataclass(frozen=True, kw_only=True)
class DeviceSelection:
    """How a round finds its devices: the first to check in, which then start together.

    Attributes:
        goal: number of check-ins at which the round starts.
        timeout: seconds after which the round starts with the devices that have checked in.
        least: the round is abandoned if fewer devices have checked in and are still online.
        pace: when devices check in; None if each does so as soon as it is online.
    """

    goal: int
    timeout: float
    least: int
    pace: Pace | None = None


class Selectors:
    """Finds the devices of one round after another. A device that is offline at its check-in time checks in when it comes.

    Args:
        rng: draws the check-in times of the pace.
        report: what devices report of when they check in, and whether they are online.
    """

    def __init__(
        self, selection: DeviceSelection, world: World, agenda: EventQueue, rng: Rng, report: Report = report_truth
    ) -> None:
        self._selection, self._presence, self._agenda, self._report = selection, world.presence, agenda, report
        self._draws = Draws(rng, uniform)
        #: Device -> its next check-in time, and the number of times that were assigned.
        self._told: dict[int, tuple[float, int]] = {}
        self._checked_in: list[int] = []
        self._found: Callable[[list[int]], None] | None = None
        self._round = 0

    def open(self, round: int, devices: Sequence[int], found: Callable[[list[int]], None]) -> None:
        """Look for a round's devices among these, and call ``found`` once with the result."""
        self._round, self._checked_in, self._found = round, [], found
        for device in devices:
            comes = self._comes_in(device)
            self._agenda.after(comes, self._check_in, device, round)
        # At rank DECIDE: a device that checks in exactly at the timeout is still taken
        self._agenda.after(self._selection.timeout, self._end, self._round, rank=Rank.DECIDE)

    def too_few(self, found: Sequence[int]) -> str | None:
        """Why a round of these devices is abandoned; None if it is not."""
        if len(found) >= self._selection.least:
            return None
        return f"{len(found)} devices checked in, of at least {self._selection.least}"

    def _comes_in(self, device: int) -> float:
        """Seconds until a device says it checks in, by the time assigned at its last check-in."""
        pace, now = self._selection.pace, self._agenda.now
        if pace is None:
            return 0.0
        # As if assigned one period before the start, so that period 0 already gets its share of the devices
        at, often = self._told.get(device, (-pace.period, 0))
        # Each time that has passed was a check-in, at which the pace assigned the next one
        while at < now:
            at = pace.next(at, self._draws(device, 2 * often), self._draws(device, 2 * often + 1))
            often += 1
        self._told[device] = at, often
        return float(self._report(CHECK_IN, device, at - now, self._round))

    def _check_in(self, device: int, round: int) -> None:
        if round != self._round or self._found is None:
            return
        wait = self._wait(device)
        if not wait:
            self._checked_in.append(device)
            if len(self._checked_in) == self._selection.goal:
                self._end(round)
        elif wait < inf:
            self._agenda.after(wait, self._check_in, device, round)

    def _end(self, round: int) -> None:
        """The goal is met or time is up: the round gets the devices that are still online."""
        if round == self._round and self._found is not None:
            found, self._found = self._found, None
            # A device may have left between its check-in and the end of the selection
            found([device for device in self._checked_in if not self._wait(device)])

    def _wait(self, device: int) -> float:
        """Seconds until a device claims to be online."""
        away = not self._report(PROMISES, device, True, self._round)
        return 0.0 if away else self._presence.wait(device, self._agenda.now)
