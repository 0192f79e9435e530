"""Worlds and courses for the tests of simulated time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice

from fedguard.contracts import Availability, Links, Network, Presence, Speeds, Stragglers
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.simulated.availability.always import FullAvailability
from fedguard.simulated.barriers import Barrier
from fedguard.simulated.course import AggregationEvent, ServerSimulation
from fedguard.simulated.world import World

#: Ten devices at most of the tests: a training takes 1 s, a message .05 s, and one device takes five times as long to train.
LATENCY = 0.05
STRAGGLER = Network(compute=Speeds(seconds=1.0, slow=Stragglers(share=0.1, factor=5.0)), link=Links(latency=LATENCY))


class Timetable(Availability):
    """Devices come and go as the test says: device -> [(begin, end), ...]; the others are always there."""

    name = "timetable"

    def __init__(self, stretches: Mapping[int, Sequence[tuple[float, float]]]) -> None:
        self.stretches = stretches

    def start(self, devices: int, rng: Rng) -> Presence:
        return _Timetable(self.stretches)


class _Timetable(Presence):
    def __init__(self, stretches: Mapping[int, Sequence[tuple[float, float]]]) -> None:
        self._stretches = stretches

    def stretch(self, device: int, after: float) -> tuple[float, float]:
        those = self._stretches.get(device, [(-math.inf, math.inf)])
        index = bisect_right([end for _, end in those], after)
        return those[index] if index < len(those) else (math.inf, math.inf)


def world(
    network: Network, devices: int, seed: int = 0, quick: frozenset[int] = frozenset(), size: int = 1000
) -> World:
    """``network.availability`` is a law's name, or a law itself, such as a `Timetable`."""
    law = network.availability or FullAvailability()
    there = law if isinstance(law, Availability) else load_registry().build("availability", law)
    return World(network, [1.0] * devices, size, Rng(seed).child("network"), quick, availability=there)


def course(
    network: Network, barrier: Barrier, devices: int, crew: int | None = None, seed: int = 0
) -> ServerSimulation:
    """Around ``devices``, of whom the first ``crew`` are chosen in each round; all, unless it is said."""
    chosen = range(devices if crew is None else crew)
    return ServerSimulation(
        world(network, devices, seed), barrier, devices, lambda round: chosen, Rng(seed).child("course")
    )


def releases(network: Network, barrier: Barrier, devices: int, count: int, **further: int) -> list[AggregationEvent]:
    return list(islice(course(network, barrier, devices, **further).releases(), count))


def rate(found: Sequence[AggregationEvent], skipped: int = 0) -> float:
    """Updates in a simulated second, after the first ``skipped`` releases."""
    updates = sum(len(release.arrivals) for release in found[skipped:])
    return updates / (found[-1].at - (found[skipped - 1].at if skipped else 0.0))
