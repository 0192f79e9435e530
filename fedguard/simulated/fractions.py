"""Shares of local work that a deadline leaves time for, and work that moves between trusted devices (after DeCaf).

What is predicted is predicted from history alone: what the devices took, and when they were there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedguard.rng import Rng
from fedguard.simulated.world import World

#: Seconds that are kept back, for times are rounded.
_SPARE = 1e-6

#: (device, examples a second, round) -> what the device says that it trains.
Rates = Callable[[int, float, int], float]
#: (device, share of rounds, round) -> how often the device says that it stays.
Stays = Callable[[int, float, int], float]


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """What the devices of a round have time for.

    Attributes:
        seconds: D, from the start of a round.
        least: the share of its work for which a device is asked at all.
        trusted: devices to a trusted set, device i belonging to number i // trusted.
        history: how many of its last trainings and rounds a prediction for a device looks at.
    """

    seconds: float
    least: float
    trusted: int
    history: int


@dataclass(frozen=True)
class Job:
    """One device's work on the examples of one client.

    Attributes:
        share: that it trains, of the passes or steps of the plan.
        claimed: what it says that it trains.
        begins: simulated seconds.
    """

    client: int
    device: int
    share: float
    claimed: float
    begins: float


class Fractions:
    """Who trains whose examples, and what share of them: $p = min(1, r (D - t) / n)$.

    n are the examples that a training passes over, r is the rate of a device, examples a second, in the slowest of its last
    ``history`` trainings, and $D - t$ is what is left of the round less the time of its messages. One without history trains
    the share ``least``. A device's availability is the share of its last ``history`` rounds for which it stayed, whether
    it trained in them or not; where p times it is less than ``least``, its examples move to the device of its trusted set that
    answers and for which that product is largest, and stay there, too; where it is less than ``least`` for all of them, the
    device is dropped from the round.

    Args:
        freight: bytes of each client's examples.
        rates, stays: what devices make of their rate and of their availability as they tell them.
        rng: orders devices that would do equally well.
    """

    def __init__(
        self, law: Deadline, world: World, freight: Sequence[int], rates: Rates, stays: Stays, rng: Rng
    ) -> None:
        self.law, self._world, self._freight, self._rng = law, world, freight, rng
        self._rates, self._stays = rates, stays
        devices = len(freight)
        #: Seconds an example, and whether a device stayed, of its last trainings and rounds.
        self._paces: list[deque[float]] = [deque(maxlen=law.history) for _ in range(devices)]
        self._stayed: list[deque[bool]] = [deque(maxlen=law.history) for _ in range(devices)]
        self._of_last_round: dict[int, bool] = {}
        #: (client, device) of examples that lie at another device, too.
        self._copied: set[tuple[int, int]] = set()
        self._tasks: dict[int, list[tuple[int, float]]] = {}
        self._round, self._opened = 0, 0.0

    def open(self, devices: Sequence[int], now: float) -> dict[int, int]:
        """A round begins. For each device that works in it, how many clients' examples it trains on."""
        self._round, self._opened = self._round + 1, now
        for device, stayed in self._of_last_round.items():
            self._stayed[device].append(stayed)
        self._of_last_round = {device: self._stays_on(device, now) for device in devices}
        end, poor = now + self.law.seconds, []
        self._tasks, busy = {}, {}
        for device in devices:
            if self._estimate_share(device, device, self.law.seconds) < self.law.least:
                poor.append(device)
            else:
                self._tasks[device] = [(device, now)]
                busy[device] = now + self._predict_seconds(device, device, self.law.seconds)
        for client in poor:
            self._move(client, now, end, busy)
        return {device: len(tasks) for device, tasks in self._tasks.items()}

    def _move(self, client: int, now: float, end: float, busy: dict[int, float]) -> None:
        """Give a client's examples to the device of its set that does best, if any does well enough."""
        found: list[tuple[float, int, float]] = []
        for device in self._others(client):
            copied = (client, device) in self._copied
            if self._world.wait(device, now) or not (copied or not self._world.wait(client, now)):
                continue  # the one does not answer, or the other cannot send its examples
            ready = now if copied else now + self._world.transfer(client, device, self._freight[client])
            left = end - max(ready, busy.get(device, now))
            found.append((self._estimate_share(client, device, left), device, ready))
        share, device, ready = max(found, key=lambda one: one[0], default=(0.0, client, now))
        if share < self.law.least:
            return
        if (client, device) not in self._copied:
            self._copied.add((client, device))
            self._world.carry(self._freight[client])
        begins = max(ready, busy.get(device, now))
        busy[device] = begins + self._predict_seconds(client, device, end - begins)
        self._tasks.setdefault(device, []).append((client, ready))

    def _others(self, client: int) -> list[int]:
        """The rest of its trusted set, in an order drawn for this round."""
        first = client - client % self.law.trusted
        members = [one for one in range(first, min(first + self.law.trusted, len(self._freight))) if one != client]
        if len(members) < 2:
            return members
        order = self._rng.child(self._round, client).numpy().permutation(len(members))
        return [members[place] for place in order]

    def jobs(self, device: int) -> list[tuple[int, float]]:
        """The clients on whose examples a device trains in this round, and from when on it has them."""
        return self._tasks.get(device, [])

    def job(self, client: int, device: int, now: float) -> Job | None:
        """What a device does of a client's work that it begins ``now``; None where there is no time for anything."""
        left = self._opened + self.law.seconds - now
        pace = self._pace(device)
        if left <= 0:
            return None
        if pace is None:
            return Job(client, device, self.law.least, self.law.least, now)
        share = self._share(client, device, left, pace)
        claimed = self._share(client, device, left, self._report_pace(device, pace))
        return Job(client, device, share, claimed, now) if share > 0 else None

    def note(self, job: Job, seconds: float) -> None:
        """A device has taken so many seconds from the model's sending to its update's arrival."""
        computing = seconds - self._world.messages(job.device)
        self._paces[job.device].append(max(computing, 0.0) / (job.share * self._world.work(job.client)))

    def _stays_on(self, device: int, now: float) -> bool:
        return not self._world.wait(device, now) and self._world.leaves(device, now, self.law.seconds) is None

    def _pace(self, device: int) -> float | None:
        """Seconds an example in the slowest training that is remembered."""
        return max(self._paces[device], default=None)

    def _report_pace(self, device: int, pace: float) -> float:
        """The same as the device tells it."""
        return 1 / self._rates(device, 1 / pace, self._round) if pace > 0 else 0.0

    def _share(self, client: int, device: int, left: float, pace: float) -> float:
        seconds = left - self._world.messages(device) - _SPARE
        whole = pace * self._world.work(client)
        return max(0.0, min(1.0, seconds / whole)) if whole > 0 else float(seconds > 0)

    def _estimate_share(self, client: int, device: int, left: float) -> float:
        """The share that is expected to come of a client's work at a device, by what this one tells."""
        pace = self._pace(device)
        if pace is None:
            return self.law.least if client == device else 0.0
        seen = self._stayed[device]
        stays = self._stays(device, sum(seen) / len(seen), self._round) if seen else 1.0
        return stays * self._share(client, device, left, self._report_pace(device, pace))

    def _predict_seconds(self, client: int, device: int, left: float) -> float:
        """Seconds that the share which there is time for takes."""
        pace = self._pace(device)
        if pace is None:
            return left
        told = self._report_pace(device, pace)
        share = self._share(client, device, left, told)
        return self._world.messages(device) + share * told * self._world.work(client)
