"""How long things take and what they cost, against the formulae of `fedguard.contracts.network`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from fedguard.contracts import Links, Network, Speeds, Stragglers
from fedguard.rng import Rng
from fedguard.simulated.world import World
from tests.simulated.scenes import Timetable, world


def test_a_message_takes_latency_and_bytes_over_bandwidth():
    there = world(Network(link=Links(latency=0.05, up=500.0, down=2000.0)), 3, size=1000)
    assert there.download(0) == pytest.approx(0.05 + 0.5)
    assert there.upload(2) == pytest.approx(0.05 + 2.0)
    assert world(Network(link=Links(latency=0.05)), 1).upload(0) == 0.05


def test_computing_takes_seconds_times_examples():
    there = World(Network(compute=Speeds(seconds=0.01)), [100.0, 250.0], 1000, Rng(0))
    assert [there.compute(device, 1) for device in (0, 1)] == pytest.approx([1.0, 2.5])


def test_speeds_and_bandwidths_are_lognormal_and_apart():
    network = Network(compute=Speeds(seconds=1.0, spread=0.5), link=Links(up=1000.0, spread=0.8))
    there = world(network, 3000)
    speeds = np.log([there.compute(device, 1) for device in range(3000)])
    bandwidths = -np.log([there.upload(device) for device in range(3000)])
    assert kstest(speeds / 0.5, "norm").pvalue > 1e-3
    assert kstest(bandwidths / 0.8, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(speeds, bandwidths)[0, 1]) < 5 / math.sqrt(3000)


def test_jitter_is_drawn_for_each_training():
    there = world(Network(compute=Speeds(seconds=1.0, jitter=0.3)), 2)
    found = np.log([there.compute(0, turn) for turn in range(1, 3001)])
    assert kstest(found / 0.3, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 5 / math.sqrt(3000)
    other = np.log([there.compute(1, turn) for turn in range(1, 3001)])
    assert abs(np.corrcoef(found, other)[0, 1]) < 5 / math.sqrt(3000)


def test_lasting_slowness_is_always_that_of_the_same_devices():
    there = world(Network(compute=Speeds(seconds=1.0, slow=Stragglers(share=0.2, factor=5.0))), 50)
    times = [[there.compute(device, turn) for device in range(50)] for turn in (1, 2, 99)]
    assert times[0] == times[1] == times[2]
    assert sorted(times[0]) == [1.0] * 40 + [5.0] * 10


def test_passing_slowness_comes_over_a_share_of_the_trainings():
    there = world(Network(compute=Speeds(seconds=1.0, slow=Stragglers(share=0.2, factor=5.0, lasting=False))), 20)
    slow = [there.compute(device, turn) == 5.0 for device in range(20) for turn in range(1, 201)]
    assert binomtest(sum(slow), len(slow), 0.2).pvalue > 1e-4


def test_a_share_of_the_updates_is_lost():
    there = world(Network(link=Links(loss=0.1)), 20)
    lost = [there.loses(device, turn) for device in range(20) for turn in range(1, 301)]
    assert binomtest(sum(lost), len(lost), 0.1).pvalue > 1e-4
    assert there.spent.lost == sum(lost)


NOISY = Network(
    compute=Speeds(seconds=1.0, spread=0.4, jitter=0.3, slow=Stragglers(share=0.3, lasting=False)),
    link=Links(up=100.0, down=300.0, spread=0.5, loss=0.2),
)


def told(there: World, device: int, turn: int) -> tuple[float, float, float, bool]:
    return (
        there.download(device), there.compute(device, turn), there.upload(device), there.loses(device, turn)
    )  # fmt: skip


def test_what_a_device_draws_depends_on_nobody_else():
    """Neither on how many there are, nor on who is asked first, nor on which training."""
    few, many = world(NOISY, 5), world(NOISY, 100)
    forth = {(device, turn): told(few, device, turn) for device in range(5) for turn in range(1, 200)}
    for turn in reversed(range(1, 200)):
        for device in (99, 70, *reversed(range(5))):
            found = told(many, device, turn)
            assert forth.get((device, turn), found) == found


def test_malicious_devices_compute_at_a_pace_of_their_own():
    there = world(Network(compute=Speeds(seconds=1.0), malicious_pace=0.1), 4, quick=frozenset({1, 3}))
    assert [there.compute(device, 1) for device in range(4)] == pytest.approx([1.0, 0.1, 1.0, 0.1])


def test_no_two_devices_and_no_two_trainings_draw_alike():
    there = world(Network(compute=Speeds(seconds=1.0, jitter=0.3)), 200)
    assert len({there.compute(device, turn) for device in range(200) for turn in range(1, 41)}) == 200 * 40


def test_what_is_spent_adds_up():
    """$watts * seconds + joules * bytes$, sent and received."""
    network = Network(compute=Speeds(seconds=2.0, watts=5.0), link=Links(joules=0.001, latency=0.5))
    there = world(network, 3, size=1000)
    assert [there.attempt(device, 1, 0.0) for device in range(3)] == [(3.0, True)] * 3
    assert there.spent.seconds == 6.0
    assert (there.spent.bytes_up, there.spent.bytes_down) == (3000, 3000)
    assert there.spent.joules == pytest.approx(5.0 * 6.0 + 0.001 * 6000)


@pytest.mark.parametrize(
    ("end", "seconds", "computed", "up"),
    [
        (0.25, 0.25, 0.0, 0),  # while it receives
        (1.5, 1.5, 1.0, 0),  # while it computes
        (2.75, 2.75, 2.0, 1000),  # while it sends
        (3.0, 3.0, 2.0, 1000),  # as the update arrives: it has stayed
        (9.0, 3.0, 2.0, 1000),
    ],
)
def test_who_leaves_has_spent_what_it_has_done(end, seconds, computed, up):
    network = Network(compute=Speeds(seconds=2.0), link=Links(latency=0.5), availability=Timetable({0: [(0.0, end)]}))
    there = world(network, 1, size=1000)
    assert there.attempt(0, 1, 0.0) == (seconds, end >= 3.0)
    assert (there.spent.seconds, there.spent.bytes_up, there.spent.bytes_down) == (computed, up, 1000)
    assert there.spent.interrupted == (end < 3.0)


def test_a_world_where_all_are_there_never_waits():
    there = world(Network(), 2)
    assert there.wait(1, 1e9) == 0.0
    assert there.leaves(1, 1e9, 1e9) is None
