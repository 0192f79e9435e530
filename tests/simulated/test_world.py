"""How long things take and what they cost, against the formulae of `fedguard.contracts.network`."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from fedguard.contracts import Links, Messages, Network, Speeds, Stragglers
from fedguard.rng import Rng
from fedguard.simulated.world import World, least_seconds
from tests.simulated.scenes import Timetable, world

#: Up, down, latency, joules and watts that have no value in common, nor have any two devices.
LOPSIDED = Network(
    compute=Speeds(seconds=0.5, paces=(1.0, 3.0, 0.2), watts=7.0),
    link=Links(latency=0.25, up=100.0, down=40.0, spread=0.8, joules=0.003),
)
WORK = (4.0, 9.0, 30.0)


def lopsided(messages: Messages | None = None) -> tuple[World, list[float], list[float]]:
    """Three devices, and their bandwidths up and down by the law of the links."""
    factors = [math.exp(0.8 * draw) for draw in Rng(5).child("bandwidths").numpy().normal(0.0, 1.0, 3)]
    return (
        World(LOPSIDED, WORK, 1000, Rng(5), messages=messages),
        [100.0 * factor for factor in factors],
        [40.0 * factor for factor in factors],
    )


def test_a_message_takes_latency_once_and_its_bytes_over_both_links():
    """$latency + sends b / up_i + hears b / down_j$, and each byte costs who sends it and who receives it."""
    there, up, down = lopsided()
    total = 0
    for (i, j), size, sends, hears in product([(0, 1), (1, 0), (2, 1)], (1, 700), (1, 3), (1, 2)):
        busy = sends * size / up[i] + hears * size / down[j]
        assert there.time_transmission(i, j, size, sends, hears) == pytest.approx(busy)
        assert there.send(i, j, size, sends, hears) == pytest.approx(0.25 + busy)
        total += size
    assert there.spent.bytes_up == there.spent.bytes_down == total
    assert there.spent.joules == pytest.approx(0.003 * 2 * total)
    assert there.spent.seconds == 0.0


def test_links_without_a_limit_take_the_latency_alone():
    there = world(Network(link=Links(latency=0.05)), 2)
    assert there.send(0, 1, 10**9, 7, 7) == there.pull[0] == there.push[1] == 0.05
    assert there.time_transmission(0, 1, 10**9) == 0.0


@pytest.mark.parametrize(
    ("messages", "got", "sent", "each_way"),
    [(None, 1000, 1000, 1), (Messages(up=300, down=700), 700, 300, 1), (Messages(300, 700, each_way=4), 700, 300, 4)],
)
def test_a_training_at_a_server_is_a_pull_a_computation_and_a_push(messages, got, sent, each_way):
    there, up, down = lopsided(messages)
    joules = seconds = 0.0
    for device, pace in enumerate((1.0, 3.0, 0.2)):
        pull, push = each_way * 0.25 + got / down[device], each_way * 0.25 + sent / up[device]
        assert (there.pull[device], there.push[device]) == pytest.approx((pull, push))
        for task, share in ((None, 1.0), (None, 0.3), (2, 0.7)):
            computing = share * 0.5 * pace * WORK[device if task is None else task]
            took, arrives = there.train(device, 1, 0.0, task, share)
            assert took == pytest.approx(pull + computing + push) and arrives
            seconds += computing
            joules += 7.0 * computing + 0.003 * (got + sent)
    assert (there.spent.bytes_up, there.spent.bytes_down) == (9 * sent, 9 * got)
    assert there.spent.seconds == pytest.approx(seconds)
    assert there.spent.joules == pytest.approx(joules)


def test_computing_by_itself_costs_no_bytes():
    there, _, _ = lopsided()
    assert [there.compute(device, 1, 0.5) for device in range(3)] == pytest.approx([1.0, 6.75, 1.5])
    assert there.spent.seconds == pytest.approx(9.25) and there.spent.joules == pytest.approx(7.0 * 9.25)
    assert there.spent.bytes_up == there.spent.bytes_down == 0


def test_a_rate_is_examples_a_second_of_a_pace():
    there, _, _ = lopsided()
    assert there.rates == pytest.approx([1 / 0.5, 1 / 1.5, 1 / 0.1])
    assert world(Network(compute=Speeds(seconds=0)), 2).rates == [math.inf] * 2


def test_the_least_is_what_a_training_takes_where_nothing_is_drawn():
    fixed = Network(
        compute=Speeds(seconds=0.5, paces=(1.0, 3.0, 0.2), slow=Stragglers(devices=(1,), factor=2.0)),
        link=Links(latency=0.25, up=100.0, down=40.0, loss=0.5), availability=Timetable({0: [(5.0, 6.0)]}), malicious_pace=0.1,
    )  # fmt: skip
    computing = [0.5 * 4, 0.5 * 3 * 2 * 9, 0.5 * 0.2 * 0.1 * 30]
    least = least_seconds(fixed, WORK, 1000, quick=frozenset({2}))
    assert least == pytest.approx([0.5 + 10 + 25 + seconds for seconds in computing])


def test_the_least_counts_nothing_that_a_draw_may_take_away():
    assert least_seconds(LOPSIDED, WORK, 1000) == pytest.approx([0.5 + 0.5 * pace * work for pace, work in zip((1.0, 3.0, 0.2), WORK, strict=True)])  # fmt: skip
    jittery = Network(compute=Speeds(seconds=0.5, jitter=0.1), link=Links(latency=0.25, up=100.0, down=40.0))
    assert least_seconds(jittery, WORK, 1000) == pytest.approx([0.5 + 10 + 25] * 3)
    late = Network(compute=Speeds(seconds=0.5, slow=Stragglers(share=1.0)), malicious_pace=9.0)
    assert least_seconds(late, WORK, 1000, quick=frozenset({0})) == pytest.approx([2.0, 4.5, 15.0])


def test_computing_takes_seconds_times_examples():
    there = World(Network(compute=Speeds(seconds=0.01)), [100.0, 250.0], 1000, Rng(0))
    assert [there.compute(device, 1) for device in (0, 1)] == pytest.approx([1.0, 2.5])


def test_speeds_and_bandwidths_are_lognormal_and_apart():
    network = Network(compute=Speeds(seconds=1.0, spread=0.5), link=Links(up=1000.0, spread=0.8))
    there = world(network, 3000)
    speeds = np.log([there.compute(device, 1) for device in range(3000)])
    bandwidths = np.log(there.up) - np.log(1000.0)
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
    return there.pull[device], there.compute(device, turn), there.push[device], there.loses(device, turn)


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


@pytest.mark.parametrize(
    ("end", "seconds", "computed", "up"),
    [
        (0.25, 0.25, 0.0, 0),  # while it receives
        (1.5, 1.5, 1.0, 0),  # while it computes
        (2.5, 2.5, 2.0, 0),  # as it begins to send
        (3.75, 3.75, 2.0, 1000),  # while it sends
        (4.0, 4.0, 2.0, 1000),  # as the update arrives: it has stayed
        (9.0, 4.0, 2.0, 1000),
    ],
)
def test_who_leaves_has_spent_what_it_has_done(end, seconds, computed, up):
    """It receives for 0.25 + 1000 / 4000 s, computes for 2 s and sends for 0.25 + 1000 / 800 s."""
    link = Links(latency=0.25, up=800.0, down=4000.0, joules=0.001)
    network = Network(compute=Speeds(seconds=2.0, watts=5.0), link=link, availability=Timetable({0: [(0.0, end)]}))
    there = world(network, 1, size=1000)
    assert there.train(0, 1, 0.0) == (seconds, end >= 4.0)
    assert (there.spent.seconds, there.spent.bytes_up, there.spent.bytes_down) == (computed, up, 1000)
    assert there.spent.joules == pytest.approx(5.0 * computed + 0.001 * (1000 + up))
    assert there.spent.interrupted == (end < 4.0)


def test_a_world_where_all_are_there_never_waits():
    there = world(Network(), 2)
    assert there.presence.wait(1, 1e9) == 0.0
    assert there.presence.leaves(1, 1e9, 1e9) is None
