"""Shares of local work that a deadline leaves time for, and work that moves between trusted devices (after DeCaf).

Predictions use history only: the durations of earlier trainings, and the rounds in which devices stayed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fedguard.contracts import LocalTraining
from fedguard.contracts.channels import AVAILABILITY, RATE
from fedguard.contracts.lying import Report, report_truth
from fedguard.rng import Rng
from fedguard.simulated.world import World

#: Seconds kept back: the queue rounds times, and an update that ends on the deadline must not come after it.
_SPARE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """Deadline of a round, and how devices plan for it.

    Attributes:
        seconds: D, from the start of a round.
        least: smallest share of its work for which a device is asked.
        trusted: devices in a trusted set; device i belongs to set i // trusted.
        history: number of a device's last trainings and rounds used for a prediction.
    """

    seconds: float
    least: float
    trusted: int
    history: int


class Fractions:
    """Which device trains on which examples, and what share of them: $p = min(1, r (D - t) / n)$.

    n is the number of examples that a training passes over, r the rate of a device (examples a second) in the slowest of its
    last ``history`` trainings, and $D - t$ the rest of the round without the time of its messages. A device without history
    trains the share ``least``.

    The availability of a device is the share of its last ``history`` rounds for which it stayed, whether or not it trained.
    If p times the availability is below ``least``, the device's examples move to the answering device of its trusted set with
    the largest product, and a copy stays there. If the product is below ``least`` for all of them, the client is dropped from
    the round.

    Args:
        freight: bytes of each client's examples.
        rng: orders devices with equal predictions.
        report: the rate and the availability that devices claim, given the true ones.
    """

    def __init__(
        self, law: Deadline, world: World, freight: Sequence[int], rng: Rng, report: Report = report_truth
    ) -> None:
        self.law, self._world, self._freight, self._rng = law, world, freight, rng
        self._presence = world.presence
        self._report = report
        devices = len(freight)
        #: Seconds for each example in the last trainings of a device, and whether it stayed in its last rounds.
        self._paces: list[deque[float]] = [deque(maxlen=law.history) for _ in range(devices)]
        self._stayed: list[deque[bool]] = [deque(maxlen=law.history) for _ in range(devices)]
        self._of_last_round: dict[int, bool] = {}
        #: (client, device): the device has a copy of the client's examples, which are sent only once.
        self._copied: set[tuple[int, int]] = set()
        self._tasks: dict[int, list[tuple[int, float]]] = {}
        self._round, self._opened = 0, 0.0

    def open(self, devices: Sequence[int], now: float) -> dict[int, int]:
        """Begin a round. For each device with work, the number of clients on whose examples it trains."""
        self._round, self._opened = self._round + 1, now
        for device, stayed in self._of_last_round.items():
            self._stayed[device].append(stayed)
        # This looks ahead in the simulation, so it becomes history only when the next round opens
        self._of_last_round = {device: self._stays_on(device, now) for device in devices}
        end, poor = now + self.law.seconds, []
        self._tasks, busy = {}, {}
        for device in devices:
            if self._estimate_share(device, device, self.law.seconds) < self.law.least:
                poor.append(device)
            else:
                self._tasks[device] = [(device, now)]
                busy[device] = now + self._predict_seconds(device, device, self.law.seconds)
        # After all own tasks are planned: only then is it known what time every device has left
        for client in poor:
            self._move(client, now, end, busy)
        return {device: len(tasks) for device, tasks in self._tasks.items()}

    def _move(self, client: int, now: float, end: float, busy: dict[int, float]) -> None:
        """Move a client's examples to the device of its trusted set with the largest expected share, unless it is too small."""
        found: list[tuple[float, int, float]] = []
        for device in self._others(client):
            copied = (client, device) in self._copied
            if self._presence.wait(device, now) or not (copied or not self._presence.wait(client, now)):
                continue  # the device does not answer, or the client is offline and cannot send its examples
            ready = now if copied else now + self._time_copy(client, device)
            left = end - max(ready, busy.get(device, now))
            found.append((self._estimate_share(client, device, left), device, ready))
        share, device, ready = max(found, key=lambda one: one[0], default=(0.0, client, now))
        if share < self.law.least:
            return
        if (client, device) not in self._copied:
            self._copied.add((client, device))
            self._world.spent.add_bytes(self._freight[client], self._freight[client])
        begins = max(ready, busy.get(device, now))
        busy[device] = begins + self._predict_seconds(client, device, end - begins)
        self._tasks.setdefault(device, []).append((client, ready))

    def _time_copy(self, client: int, device: int) -> float:
        """Seconds of a client's examples on their way through a server to another device."""
        world, size = self._world, self._freight[client]
        return 2 * world.latency + world.time_transmission(client, device, size)

    def _time_messages(self, device: int) -> float:
        """Seconds for a model to a device and an update from it, together."""
        return self._world.pull[device] + self._world.push[device]

    def _others(self, client: int) -> list[int]:
        """The other devices of its trusted set, in an order drawn for this round."""
        first = client - client % self.law.trusted
        members = [one for one in range(first, min(first + self.law.trusted, len(self._freight))) if one != client]
        if len(members) < 2:
            return members
        # `max` takes the first of equals, which would always be the device with the lowest number
        order = self._rng.child(self._round, client).numpy().permutation(len(members))
        return [members[place] for place in order]

    def jobs(self, device: int) -> list[tuple[int, float]]:
        """The clients on whose examples a device trains in this round, each with the time from which it has them."""
        return self._tasks.get(device, [])

    def plan_training(self, client: int, device: int, now: float) -> LocalTraining | None:
        """The part of a client's work that a device does if it begins ``now``; None if there is no time for any."""
        left = self._opened + self.law.seconds - now
        pace = self._pace(device)
        if left <= 0:
            return None
        if pace is None:
            return LocalTraining(client, now, now, by=device, share=self.law.least, claimed=self.law.least)
        # A liar trains what its true pace allows, so that it keeps the deadline, and claims what its reported pace would allow
        share = self._share(client, device, left, pace)
        claimed = self._share(client, device, left, self._report_pace(device, pace))
        return LocalTraining(client, now, now, by=device, share=share, claimed=claimed) if share > 0 else None

    def note(self, device: int, training: LocalTraining, seconds: float) -> None:
        """Record that a device's training took ``seconds`` from the sending of the model to the arrival of the update."""
        computing = seconds - self._time_messages(device)
        self._paces[device].append(max(computing, 0.0) / (training.share * self._world.work[training.client]))

    def _stays_on(self, device: int, now: float) -> bool:
        return not self._presence.wait(device, now) and self._presence.leaves(device, now, self.law.seconds) is None

    def _pace(self, device: int) -> float | None:
        """Seconds for each example in the slowest remembered training; None without history."""
        # The slowest, not the mean: an update that misses the deadline is lost as a whole
        return max(self._paces[device], default=None)

    def _report_pace(self, device: int, pace: float) -> float:
        """The pace as the device claims it."""
        return 1 / float(self._report(RATE, device, 1 / pace, self._round)) if pace > 0 else 0.0

    def _share(self, client: int, device: int, left: float, pace: float) -> float:
        seconds = left - self._time_messages(device) - _SPARE
        whole = pace * self._world.work[client]
        return max(0.0, min(1.0, seconds / whole)) if whole > 0 else float(seconds > 0)

    def _estimate_share(self, client: int, device: int, left: float) -> float:
        """The share of a client's work expected from a device, by what the device claims."""
        pace = self._pace(device)
        if pace is None:
            return self.law.least if client == device else 0.0
        seen = self._stayed[device]
        stays = self._report(AVAILABILITY, device, sum(seen) / len(seen), self._round) if seen else 1.0
        return stays * self._share(client, device, left, self._report_pace(device, pace))

    def _predict_seconds(self, client: int, device: int, left: float) -> float:
        """Seconds of the share that fits into ``left``; all of ``left`` without history."""
        pace = self._pace(device)
        if pace is None:
            return left
        told = self._report_pace(device, pace)
        share = self._share(client, device, left, told)
        return self._time_messages(device) + share * told * self._world.work[client]
