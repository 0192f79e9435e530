"""Backup tasks: what is still awaited runs a second time on the device that has the same examples."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from math import comb

import pytest

from fedguard.contracts import Fate, Links, Network, Speeds, Stragglers
from fedguard.rng import Rng
from fedguard.simulated.barriers import bsp
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.world import World

N, SLOWNESS = 20, 5.0


def rounds(count, *, backups, slow=None, work=None, chosen=range(N), seed=0):
    """Seconds of each round; a training takes a second for each unit of work, and a message no time."""
    network = Network(compute=Speeds(seconds=1.0, slow=slow or Stragglers()), link=Links(latency=0.0))
    world = World(network, work or [1.0] * N, 1000, Rng(seed).child("network"))
    barrier = replace(bsp(len(chosen)), backups=backups)
    found = list(islice(ServerSimulation(world, barrier, N, lambda round: chosen, Rng(seed)).releases(), count))
    ends = [0.0, *(release.at for release in found)]
    return [end - begin for begin, end in pairwise(ends)], found, world


def test_a_lasting_straggler_is_waited_for_no_longer_than_two_tasks():
    """Devices 0 to 19, one of them slow: all but one are done after a second, and a copy takes another."""
    slow = Stragglers(share=1 / N, factor=SLOWNESS)
    assert rounds(5, backups=0, slow=slow)[0] == [5.0] * 5
    times, found, world = rounds(5, backups=1, slow=slow)
    assert times == [2.0] * 5
    assert all({one.client for one in release.arrivals} == set(range(N)) for release in found)
    assert all(len(release.arrivals) == N and not release.of_fate(Fate.LATE) for release in found)
    assert world.spent.seconds == 5 * (N - 1 + 5 + 1)  # the beaten copy is paid for, too


def expected(n: int, p: float, b: int, factor: float) -> float:
    """Mean seconds of a round, where any task is slow with chance p: $1$ with none slow, 2 with up to b whose copies are not.

    A copy goes to the next device, which is idle if it is not slow itself: with k slow tasks on a circle of n, no two side by
    side in $n / (n - k) * C(n - k, k)$ of the $C(n, k)$ cases.
    """
    total = 0.0
    for k in range(n + 1):
        chance = comb(n, k) * p**k * (1 - p) ** (n - k)
        apart = n / (n - k) * comb(n - k, k) / comb(n, k) if 2 * k <= n else 0.0
        saved = apart * (1 - p) ** k if 0 < k <= b else 0.0
        total += chance * (1.0 if k == 0 else 2 * saved + factor * (1 - saved))
    return total


@pytest.mark.parametrize(("share", "backups"), [(0.05, 0), (0.05, 1), (0.05, 4), (0.15, 2)])
def test_the_mean_time_of_a_round_is_that_of_the_closed_form(share, backups):
    """Four standard errors of 1,000 rounds, which take 1, 2 or 5 seconds."""
    times, _, _ = rounds(1000, backups=backups, slow=Stragglers(share=share, factor=SLOWNESS, lasting=False))
    assert set(times) <= {1.0, 2.0, 5.0} and (2.0 in times) == (backups > 0)
    assert sum(times) / 1000 == pytest.approx(expected(N, share, backups, SLOWNESS), abs=4 * 2 / 1000**0.5)


def test_a_copy_is_as_much_work_as_the_task_and_goes_at_the_pace_of_its_device():
    """Device 3 has nine units of work and device 4 one: the copy that starts at one second would end at ten, and is beaten."""
    work = [1.0] * N
    work[3] = 9.0
    assert rounds(2, backups=1, work=work)[0] == [9.0] * 2


def test_a_device_that_is_still_at_work_has_no_hands_free():
    work = [1.0] * N
    work[3], work[4] = 4.0, 6.0
    times, _, world = rounds(1, backups=2, work=work)  # the copy of 4 at 5 is beaten: it would end at 7
    assert times == [6.0] and world.spent.seconds == 18 + 4 + 6 + 6
    chosen = tuple(device for device in range(N) if device != 5)  # idle, since it is not chosen
    assert rounds(1, backups=1, work=work, chosen=chosen)[0] == [6.0]


def test_without_backups_nothing_is_spent_on_them():
    plain, none = rounds(3, backups=0, slow=Stragglers(share=0.1))[2], rounds(3, backups=0)[2]
    assert plain.spent.seconds == 3 * (18 + 2 * 5) and none.spent.seconds == 3 * N
