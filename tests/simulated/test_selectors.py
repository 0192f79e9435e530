"""Selection and pace: how a round finds its devices, in seconds worked out by hand, and who comes when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from fedguard.contracts import Links, Network, Speeds
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.simulated.barriers import k_of_n
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.pace import Pace
from fedguard.simulated.selectors import DeviceSelection
from tests.simulated.scenes import Timetable, world

#: A training takes a second, and a message no time.
SECOND = Network(compute=Speeds(seconds=1.0), link=Links(latency=0.0))
FOREVER = (0.0, 1e9)
#: Device 2 comes at 5 s and device 3 at 30 s.
LATE = Timetable({2: [(5.0, 1e9)], 3: [(30.0, 1e9)]})


def found(there, selection, count, *, devices=4, goal=4, deadline=100.0, least=1):
    barrier = replace(k_of_n(goal, deadline, least), selection=selection)
    course = ServerSimulation(
        world(replace(SECOND, availability=there), devices), barrier, devices, lambda round: range(devices), Rng(0)
    )
    return list(islice(course.releases(), count))


def test_a_round_starts_when_its_goal_has_checked_in():
    (first,) = found(LATE, DeviceSelection(goal=3, timeout=20.0, least=2), 1)
    assert {one.client for one in first.begun} == {0, 1, 2}
    assert {one.began for one in first.arrivals} == {5.0} and first.at == 6.0


def test_at_the_timeout_the_least_is_enough():
    (first,) = found(LATE, DeviceSelection(goal=4, timeout=20.0, least=3), 1)
    assert {one.client for one in first.begun} == {0, 1, 2}
    assert {one.began for one in first.arrivals} == {20.0} and first.at == 21.0


def test_with_fewer_the_round_is_abandoned_and_the_next_one_looks_again():
    first, second = found(LATE, DeviceSelection(goal=4, timeout=20.0, least=4), 2)
    assert first.abandoned == "3 devices checked in, of at least 4"
    assert first.at == 20.0 and first.begun == () and first.arrivals == ()
    assert second.at == 31.0 and len(second.arrivals) == 4 and second.version == 0


def test_one_that_has_left_again_is_not_taken_and_one_that_never_comes_is_not_awaited():
    there = Timetable({0: [(0.0, 4.0)], 2: [(5.0, 1e9)], 3: []})
    (first,) = found(there, DeviceSelection(goal=3, timeout=20.0, least=2), 1)
    assert {one.client for one in first.begun} == {1, 2} and first.at == 6.0


def test_nobody_at_all_ends_each_round_at_its_timeout():
    nobody = Timetable(dict.fromkeys(range(4), ()))
    assert [one.at for one in found(nobody, DeviceSelection(goal=3, timeout=20.0, least=1), 3)] == [20.0, 40.0, 60.0]


def test_who_is_taken_among_those_that_are_there_is_drawn():
    taken = Counter(
        one.client
        for release in found(Timetable({}), DeviceSelection(goal=5, timeout=9.0, least=1), 400, devices=10)
        for one in release.begun
    )
    assert sum(taken.values()) == 2000
    assert max(abs(count - 200) for count in taken.values()) < 5 * (400 * 0.25) ** 0.5


def test_the_goal_is_that_of_the_barrier_where_fewer_were_selected():
    """Three are taken for four that are wanted: the round waits for these, and for no fourth."""
    (first,) = found(LATE, DeviceSelection(goal=4, timeout=20.0, least=2), 1, goal=4)
    assert len(first.arrivals) == 3 and first.at == 21.0


# Pace.

PERIOD, GOAL = 60.0, 130


@pytest.mark.parametrize("devices", [130, 259, 1_000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("bound", [5.0, 20.0, 100.0])
def test_the_pace_keeps_its_bound_and_meets_its_goal(devices, bound):
    """The law itself: n / k come in a slot, in w seconds of it."""
    pace = Pace.of(devices, GOAL, period=PERIOD, bound=bound)
    each = devices / pace.slots
    assert each / pace.width <= bound * (1 + 1e-9) and pace.width <= PERIOD
    assert each >= min(GOAL, devices)
    assert pace.slots == 1 or each <= 4 * GOAL  # and no more come than are of use


@pytest.mark.parametrize("devices", [150, 1_000, 50_000])
def test_devices_that_keep_to_it_come_as_the_law_says(devices):
    """Each is told when it comes; counted over the first ten slots, with five standard deviations to spare."""
    pace, draw = Pace.of(devices, GOAL, period=PERIOD, bound=20.0), np.random.default_rng(0)
    end, times = 10 * PERIOD, []
    for _ in range(devices):
        now = -PERIOD
        while now < end:
            later = pace.next(now, *draw.random(2))
            assert later > now
            now = later
            times.append(now)
    counted = [at for at in times if at < end]
    seconds, slots = Counter(int(at) for at in counted), Counter(int(at // PERIOD) for at in counted)
    assert max(seconds.values()) <= 20 + 5 * 20**0.5
    assert all(at % PERIOD <= pace.width for at in counted)
    if pace.slots == 1:
        assert set(slots.values()) == {devices}
    else:
        expected = devices / pace.slots
        assert all(abs(count - expected) < 5 * expected**0.5 for count in slots.values())


def test_a_bound_under_which_no_goal_is_met_is_refused():
    with pytest.raises(ConfigError, match="2 times 130 devices in 60 s are more than 4 a second"):
        Pace.of(1000, GOAL, period=PERIOD, bound=4.0)


def test_steered_devices_check_in_by_the_pace():
    """Forty devices in slots of ten seconds, two slots, twelve wanted: each round finds its own, within a slot's first seconds."""
    pace = Pace(period=10.0, slots=2, width=4.0)
    rounds = found(Timetable({}), DeviceSelection(goal=12, timeout=10.0, least=8, pace=pace), 30, devices=40, goal=12)
    assert all(release.abandoned is None for release in rounds)
    assert all(one.began % 10.0 <= 4.0 for release in rounds for one in release.arrivals)
    assert len({one.client for release in rounds for one in release.arrivals}) == 40
