"""Simulated devices and links: durations of computing and messages, availability, and resources used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts.network import Network
from fedguard.rng import Rng
from fedguard.simulated.draws import Draws, exponential, normal, uniform


def least_seconds(
    network: Network, work: Sequence[float], size: int, quick: frozenset[int] = frozenset()
) -> list[float]:
    """Lower bound in seconds, for each device, on the time from its pull of the model to the arrival of its update.

    A term multiplied by a random factor that may come near 0 counts as 0. Arguments as of `World`.
    """
    speeds, link = network.compute, network.link
    drawn = speeds.spread > 0 or speeds.jitter != 0
    own = speeds.paces or (1.0,) * len(work)
    transfer = 0.0 if link.spread else sum(size / bandwidth for bandwidth in (link.up, link.down) if bandwidth)
    paces = [min(network.malicious_pace, 1.0) if device in quick else 1.0 for device in range(len(work))]
    slow = [speeds.slow.factor if device in speeds.slow.devices else 1.0 for device in range(len(work))]
    paces = [pace * ours * factor for pace, ours, factor in zip(paces, own, slow, strict=True)]
    computing = [0.0 if drawn else speeds.seconds * one * pace for one, pace in zip(work, paces, strict=True)]
    return [2 * link.latency + transfer + seconds for seconds in computing]


@dataclass
class ResourceUse:
    """Resources used so far, in total over the devices.

    Attributes:
        seconds: seconds of computing.
        joules: energy of computing, sending and receiving.
        bytes_up, bytes_down: bytes sent by devices and to them, lost messages included. A message counts in full once begun.
        lost: number of updates that the network lost.
        interrupted: number of trainings that ended because the device left before its update had arrived.
    """

    seconds: float = 0.0
    joules: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    lost: int = 0
    interrupted: int = 0


class World:
    """The devices of a federation and their links.

    The duration of a device's k-th training depends only on the seed, the device and k.

    Args:
        work: examples that one training of each device passes over.
        size: bytes of a model, and of an update.
        quick: malicious devices, with the pace ``network.malicious_pace``.
        sent, got: bytes that a device sends to a server, and receives from it; the bytes of a model if None.
        each_way: number of messages each way, one after another; each adds the latency.
        steady: devices that are always online and never lose a message.
    """

    def __init__(
        self,
        network: Network,
        work: Sequence[float],
        size: int,
        rng: Rng,
        quick: frozenset[int] = frozenset(),
        sent: int | None = None,
        got: int | None = None,
        each_way: int = 1,
        steady: frozenset[int] = frozenset(),
    ) -> None:
        devices, speeds, link = len(work), network.compute, network.link
        self.network, self.size, self.spent = network, size, ResourceUse()
        self._sent, self._got = size if sent is None else sent, size if got is None else got
        self._each_way, self._steady = each_way, steady
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
        self._work: list[float] = np.asarray(work, np.float64).tolist()
        self._compute: list[float] = (compute * np.asarray(work, np.float64) * speeds.seconds).tolist()
        self._pace: list[float] = (compute * speeds.seconds).tolist()
        self._up = self._message(link.up, bandwidth, self._sent)
        self._down = self._message(link.down, bandwidth, self._got)
        self._passing = speeds.slow.share if not speeds.slow.lasting else 0.0
        self._presence = network.availability.start(devices, rng.child("there"))
        self._jitter = Draws(rng.child("jitter"), exponential if speeds.jitter == "exponential" else normal)
        self._slow = Draws(rng.child("slow"), uniform)
        self._loss = Draws(rng.child("loss"), uniform)

    def _message(self, bandwidth: float | None, factor: NDArray[np.float64], size: int) -> list[float]:
        # Latency is part of the stored time; methods for other sizes take it out, as only the rest grows with the bytes
        seconds = np.zeros(len(factor)) if bandwidth is None else size / (bandwidth * factor)
        times: list[float] = (seconds + self._each_way * self.network.link.latency).tolist()
        return times

    def download(self, device: int) -> float:
        """Seconds until a device has the model, or what else it receives for a training."""
        self.spent.bytes_down += self._got
        self.spent.joules += self.network.link.joules * self._got
        return self._down[device]

    def compute(self, device: int, turn: int, share: float = 1.0) -> float:
        """Seconds of a device's ``turn``-th training (from 1), with its work multiplied by ``share``."""
        seconds = self._computing(device, turn) * share
        self._charge_computation(seconds)
        return seconds

    def _computing(self, device: int, turn: int, task: int | None = None) -> float:
        speeds = self.network.compute
        seconds: float = self._compute[device] if task is None else self._pace[device] * self._work[task]
        if speeds.jitter:
            drawn = self._jitter(device, turn)
            seconds *= drawn if speeds.jitter == "exponential" else exp(speeds.jitter * drawn)
        if self._passing and self._slow(device, turn) < self._passing:
            seconds *= speeds.slow.factor
        return seconds

    def _charge_computation(self, seconds: float) -> None:
        self.spent.seconds += seconds
        self.spent.joules += self.network.compute.watts * seconds

    def upload(self, device: int) -> float:
        """Seconds until an update of a device arrives, unless it is lost."""
        self.spent.bytes_up += self._sent
        self.spent.joules += self.network.link.joules * self._sent
        return self._up[device]

    def between(self, source: int, device: int, sends: int, hears: int, size: int | None = None) -> float:
        """Seconds for a vector from one device to another over their own links.

        Args:
            sends: vectors that the source sends at once.
            hears: vectors that the device receives at once.
            size: bytes of the vector; the bytes of a model if None.
        """
        self.carry(self.size if size is None else size)
        latency, scale = self.network.link.latency, 1.0 if size is None else size / self.size
        # The vectors of a link share its bandwidth, so that each takes as long as all of them; latency passes only once
        up, down = (self._up[source] - latency) * scale, (self._down[device] - latency) * scale
        return latency + up * sends + down * hears

    def rate(self, device: int) -> float:
        """Examples that a device trains on in a second, without the random factors of each training; infinity for no limit."""
        return 1 / self._pace[device] if self._pace[device] > 0 else inf

    def bytes_within(self, seconds: float, source: int, device: int, sends: int, hears: int) -> float:
        """Bytes that travel from one device to another in ``seconds``, latency ignored; other arguments as of `between`."""
        latency = self.network.link.latency
        whole = (self._up[source] - latency) * sends + (self._down[device] - latency) * hears
        return seconds / whole * self.size if whole > 0 else inf

    def loses(self, device: int, turn: int) -> bool:
        """Whether the update of a device's ``turn``-th training is lost."""
        loss = self.network.link.loss
        lost = loss > 0 and device not in self._steady and self._loss(device, turn) < loss
        self.spent.lost += lost
        return lost

    def drops(self, source: int, message: int) -> bool:
        """Whether the network loses a device's ``message``-th message to another device (from 0)."""
        loss = self.network.link.loss
        lost = loss > 0 and source not in self._steady and self._loss(source, message) < loss
        self.spent.lost += lost
        return lost

    def cycle(self, device: int, turn: int) -> float:
        """Seconds from a device's pull of the model to the arrival of its update."""
        return self.download(device) + self.compute(device, turn) + self.upload(device)

    def wait(self, device: int, now: float) -> float:
        """Seconds until a device is online: 0 if it is online ``now``, infinity if it never comes."""
        return 0.0 if device in self._steady else self._presence.wait(device, now)

    def leaves(self, device: int, now: float, seconds: float) -> float | None:
        """Seconds until a device that is online ``now`` leaves, if it does so in the next ``seconds``; None if it stays."""
        return None if device in self._steady else self._presence.leaves(device, now, seconds)

    def work(self, device: int) -> float:
        """Examples that a whole training of a device passes over."""
        return self._work[device]

    def messages(self, device: int) -> float:
        """Seconds for a model to a device and an update from it, together."""
        return self._down[device] + self._up[device]

    def transfer(self, source: int, device: int, size: int) -> float:
        """Seconds for ``size`` bytes from one device to another through a server."""
        latency, scale = self.network.link.latency, size / self.size
        return 2 * latency + (self._up[source] + self._down[device] - 2 * latency) * scale

    def carry(self, size: int) -> None:
        """Charge ``size`` bytes that travel from one device to another."""
        self.spent.bytes_up += size
        self.spent.bytes_down += size
        self.spent.joules += 2 * self.network.link.joules * size

    def step(self, sent: Mapping[int, int], received: Mapping[int, int]) -> float:
        """Seconds until messages between devices, all sent at once, have arrived. Links carry both directions at a time.

        Args:
            sent, received: bytes by device.
        """
        latency, spent = self.network.link.latency, self.spent
        spent.bytes_up += sum(sent.values())
        spent.bytes_down += sum(received.values())
        spent.joules += self.network.link.joules * (sum(sent.values()) + sum(received.values()))
        up = [(self._up[device] - latency) * size / self.size for device, size in sent.items()]
        down = [(self._down[device] - latency) * size / self.size for device, size in received.items()]
        return latency + max(up + down, default=0.0)

    def attempt(
        self, device: int, turn: int, now: float, task: int | None = None, share: float = 1.0
    ) -> tuple[float, bool]:
        """Seconds from a device's pull of the model until its update arrives, and True; or until it leaves, and False.

        Args:
            task: device that the task belongs to; None for its own.
            share: share of the task that it does.
        """
        down, computing, up = self._down[device], self._computing(device, turn, task) * share, self._up[device]
        left = self.leaves(device, now, down + computing + up)
        self.download(device)
        if left is None:
            self._charge_computation(computing)
            self.upload(device)
            return down + computing + up, True
        self._charge_computation(min(max(left - down, 0.0), computing))
        if left > down + computing:
            self.upload(device)
        self.spent.interrupted += 1
        return left, False
