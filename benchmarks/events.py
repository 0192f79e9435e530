"""Simulated time: CPU time of an event and memory of the course of a training, without the training itself.

A training of a device is two events: it begins, and its update arrives; to wait until it is there is a third. What a device
costs in its first two trainings is timed apart from the events after them. Memory is what Python and numpy hold after those.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from measure import arguments, keep

from fedguard.contracts import Links, Network, Speeds
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.simulated.barriers import Barrier, asp, bsp, buffer_barrier, ssp
from fedguard.simulated.course import AggregationEvent, ServerSimulation
from fedguard.simulated.world import World

#: Who waits for whom, and which share of the devices is at work.
WAYS: dict[str, tuple[Callable[[int], Barrier], float]] = {
    "asynchronous": (lambda n: asp(), 1.0),
    "bounded delay": (lambda n: ssp(4), 1.0),
    "buffered, a tenth at work": (lambda n: buffer_barrier(10), 0.1),
    "all together": (bsp, 1.0),
}

#: Seconds of a median training: short ones, and such as take several days together.
MINUTE, HOUR = 60.0, 3600.0
#: Trainings of each device at work, first those that are not timed.
BEFORE, TIMED = 2, 10


def begun(devices: int, way: str, there: str, seconds: float) -> tuple[ServerSimulation, Iterator[AggregationEvent]]:
    """A course, and its releases."""
    barrier, share = WAYS[way]
    network = Network(
        compute=Speeds(seconds=seconds, spread=0.5, jitter=0.3),
        link=Links(latency=0.1, up=1e6),
    )
    crew = range(int(devices * share))
    world = World(
        network, [1.0] * devices, 1_000_000, Rng(0), availability=load_registry().build("availability", there)
    )
    course = ServerSimulation(world, barrier(devices), devices, lambda round: crew, Rng(1))
    return course, course.releases()


def measured(devices: int, way: str, there: str, seconds: float = MINUTE) -> dict[str, Any]:
    """Microseconds of CPU that a device costs at first, and each event after that; memory for each device."""
    barrier, share = WAYS[way]
    once = max(1, int(devices * share) // barrier(devices).count)  # releases while each device at work trains once
    start = time.process_time()
    course, releases = begun(devices, way, there, seconds)
    list(islice(releases, BEFORE * once))
    middle, before = time.process_time(), course.events
    updates = sum(len(one.arrivals) for one in islice(releases, TIMED * once))
    spent, events, days = time.process_time() - middle, course.events - before, course.now / 86400
    tracemalloc.start()
    kept = begun(devices, way, there, seconds)
    list(islice(kept[1], BEFORE * once))
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "devices": devices,
        "way": way,
        "there": there,
        "training, s": seconds,
        "first trainings, us a device": 1e6 * (middle - start) / devices,
        "event, us": 1e6 * spent / events,
        "events a second": events / spent,
        "events an update": events / updates,
        "simulated days": days,
        "memory, KiB a device": memory / 1024 / devices,
    }


def told(found: dict[str, Any]) -> dict[str, Any]:
    """The same, printed."""
    print("  ".join(f"{name}: {_said(value)}" for name, value in found.items()), flush=True)
    return found


def main() -> None:
    """Print a line for each case."""
    options = arguments(__doc__ or "")
    measured(100, "asynchronous", "on_off")  # a warm-up
    figures = []
    for devices in (100, 300) if options.smoke else (1000, 10_000):
        for there in ("always", "on_off", "day_and_night"):
            for way in WAYS:
                if way == "all together" and there == "on_off":
                    continue  # whoever leaves is out of the round, so it never ends
                figures.append(told(measured(devices, way, there)))
        figures.append(told(measured(devices, "asynchronous", "day_and_night", HOUR)))
    keep(options.json, figures)


def _said(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
