"""Simulated devices and links: durations of computing and messages, availability, and resources used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf

import numpy as np

from fedguard.contracts import Messages, Presence
from fedguard.contracts.availability import Availability
from fedguard.contracts.network import Network
from fedguard.rng import Rng
from fedguard.simulated.availability.always import FullAvailability
from fedguard.simulated.draws import Draws, exponential, normal, uniform


@dataclass
class ResourceUse:
    """Resources used so far, in total over the devices.

    Attributes:
        watts: power of a device that computes.
        joules_per_byte: energy of a device for each byte that it sends or receives.
        seconds: seconds of computing.
        joules: energy of computing, sending and receiving.
        bytes_up, bytes_down: bytes sent by devices and to them, lost messages included. A message counts in full once begun.
        lost: number of messages of devices that the network lost.
        interrupted: number of trainings that ended because the device left before its update had arrived.
    """

    watts: float
    joules_per_byte: float
    seconds: float = 0.0
    joules: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    lost: int = 0
    interrupted: int = 0

    def add_computing(self, seconds: float) -> None:
        """Charge ``seconds`` in which a device computes."""
        self.seconds += seconds
        self.joules += self.watts * seconds

    def add_bytes(self, up: int = 0, down: int = 0) -> None:
        """Charge bytes that devices send and receive."""
        self.bytes_up += up
        self.bytes_down += down
        self.joules += self.joules_per_byte * (up + down)


class World:
    """The devices of a federation and their links.

    A message of b bytes from i to j takes $latency + b / up_i + b / down_j$ seconds, and one to or from a server only the
    term of the device. What devices do is charged to ``spent``. The duration of a device's k-th training depends only on the
    seed, the device and k.

    Args:
        work: examples that one training of each device passes over.
        size: bytes of a model.
        quick: malicious devices, with the pace ``network.malicious_pace``.
        messages: what a training sends to a server and receives from it; a model each way if None.
        steady: devices that are always online and never lose a message.
        availability: when the others are online; always if None.

    Attributes:
        spent: resources used so far.
        presence: when devices are online.
        latency: seconds that any message takes.
        up, down: bytes per second from each device, and to it; infinity for no limit.
        pull, push: seconds from a server to each device and back, for all that one training sends.
        work: examples that one training of each device passes over.
        rates: examples a second on which each device trains, without the random factors of each training; infinity for no
            limit.
    """

    def __init__(
        self,
        network: Network,
        work: Sequence[float],
        size: int,
        rng: Rng,
        quick: frozenset[int] = frozenset(),
        messages: Messages | None = None,
        steady: frozenset[int] = frozenset(),
        availability: Availability | None = None,
    ) -> None:
        devices, speeds, link = len(work), network.compute, network.link
        self.network, self.size, self._messages = network, size, messages or Messages(size, size)
        self.spent = ResourceUse(speeds.watts, link.joules)
        # Each quantity has a stream of its own, drawn even without a spread: switching one on leaves all others as they are
        compute = np.exp(rng.child("speeds").numpy().normal(0.0, 1.0, devices) * speeds.spread)
        bandwidth = np.exp(rng.child("bandwidths").numpy().normal(0.0, 1.0, devices) * link.spread)
        order = rng.child("stragglers").numpy().permutation(devices)
        if speeds.slow.lasting:
            # An exact share of the devices, not a chance for each: few devices would often have no straggler at all
            compute[order[: round(speeds.slow.share * devices)]] *= speeds.slow.factor
        compute[list(speeds.slow.devices)] *= speeds.slow.factor
        if speeds.paces is not None:
            compute *= np.array(speeds.paces)
        compute[sorted(quick)] *= network.malicious_pace
        self.work: list[float] = np.asarray(work, np.float64).tolist()
        self._own: list[float] = (compute * np.asarray(work, np.float64) * speeds.seconds).tolist()
        self._paces: list[float] = (compute * speeds.seconds).tolist()
        self.rates = [1 / pace if pace > 0 else inf for pace in self._paces]
        up, down = ((inf if one is None else one) * bandwidth for one in (link.up, link.down))
        self.latency, waits = link.latency, self._messages.each_way * link.latency
        self.up: list[float] = up.tolist()
        self.down: list[float] = down.tolist()
        self.pull: list[float] = (waits + self._messages.down / down).tolist()
        self.push: list[float] = (waits + self._messages.up / up).tolist()
        self._passing = speeds.slow.share if not speeds.slow.lasting else 0.0
        presence = (availability or FullAvailability()).start(devices, rng.child("there"))
        self.presence = _SteadyPresence(presence, steady) if steady else presence
        self._steady = steady
        self._jitter = Draws(rng.child("jitter"), exponential if speeds.jitter == "exponential" else normal)
        self._slow = Draws(rng.child("slow"), uniform)
        self._loss = Draws(rng.child("loss"), uniform)

    def time_transmission(self, source: int, target: int, size: int, sends: int = 1, hears: int = 1) -> float:
        """Seconds for which a message from one device to another occupies their links: without latency, and not charged.

        Args:
            size: bytes.
            sends: messages of this size that the source sends at once.
            hears: messages of this size that the target receives at once.
        """
        # The messages of a link share its bandwidth, so that each takes as long as all of them
        return size / self.up[source] * sends + size / self.down[target] * hears

    def send(self, source: int, target: int, size: int, sends: int = 1, hears: int = 1) -> float:
        """Seconds until a message from one device to another has arrived; arguments as of `time_transmission`."""
        self.spent.add_bytes(size, size)
        return self.latency + self.time_transmission(source, target, size, sends, hears)

    def compute(self, device: int, turn: int, share: float = 1.0, task: int | None = None) -> float:
        """Seconds of a device's ``turn``-th training (from 1), times ``share``; ``task`` as of `train`."""
        seconds = self._time_training(device, turn, task) * share
        self.spent.add_computing(seconds)
        return seconds

    def _time_training(self, device: int, turn: int, task: int | None = None) -> float:
        speeds = self.network.compute
        seconds = self._own[device] if task is None else self._paces[device] * self.work[task]
        if speeds.jitter:
            drawn = self._jitter(device, turn)
            seconds *= drawn if speeds.jitter == "exponential" else exp(speeds.jitter * drawn)
        if self._passing and self._slow(device, turn) < self._passing:
            seconds *= speeds.slow.factor
        return seconds

    def train(
        self, device: int, turn: int, now: float, task: int | None = None, share: float = 1.0
    ) -> tuple[float, bool]:
        """Seconds from a device's pull of the model until its update arrives, and True; or until it leaves, and False.

        Args:
            task: device that the task belongs to; None for its own.
            share: share of the task that it does.
        """
        spent, down, up = self.spent, self.pull[device], self.push[device]
        computing = self._time_training(device, turn, task) * share
        whole = down + computing + up
        left = self.presence.leaves(device, now, whole)
        spent.add_bytes(down=self._messages.down)
        spent.add_computing(computing if left is None else min(max(left - down, 0.0), computing))
        if left is None or left > down + computing:
            spent.add_bytes(up=self._messages.up)
        if left is None:
            return whole, True
        spent.interrupted += 1
        return left, False

    def loses(self, device: int, number: int) -> bool:
        """Whether the network loses a message of a device: the update of its training ``number``, or its message ``number``."""
        loss = self.network.link.loss
        lost = loss > 0 and device not in self._steady and self._loss(device, number) < loss
        self.spent.lost += lost
        return lost


class _SteadyPresence(Presence):
    """The online intervals of devices of which some are always online."""

    def __init__(self, presence: Presence, steady: frozenset[int]) -> None:
        self._presence, self._steady = presence, steady

    def stretch(self, device: int, after: float) -> tuple[float, float]:
        return (-inf, inf) if device in self._steady else self._presence.stretch(device, after)


def least_seconds(
    network: Network,
    work: Sequence[float],
    size: int,
    quick: frozenset[int] = frozenset(),
    messages: Messages | None = None,
) -> list[float]:
    """Lower bound in seconds, for each device, on the time from its pull of the model to the arrival of its update.

    A term multiplied by a random factor that may come near 0 counts as 0. Arguments as of `World`.
    """
    speeds, link = network.compute, network.link
    seconds = 0.0 if speeds.spread or speeds.jitter else speeds.seconds
    least = replace(
        network,
        compute=replace(speeds, seconds=seconds, spread=0.0, jitter=0.0, slow=replace(speeds.slow, share=0.0)),
        link=replace(link, up=None, down=None) if link.spread else link,
        malicious_pace=min(network.malicious_pace, 1.0),
    )
    world = World(least, work, size, Rng(0), quick, messages)
    return [world.train(device, 1, 0.0)[0] for device in range(len(work))]
