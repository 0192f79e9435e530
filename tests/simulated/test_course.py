"""Who trains when, and which updates meet: rates, shares and waits against closed forms."""

from __future__ import annotations

import math
import time
from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, norm

from fedguard.contracts import Fate, Links, Network, Participation, Speeds, Stragglers
from fedguard.errors import StalledError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.simulated.barriers import Barrier, asp, bsp, buffer_barrier, k_of_n, ssp
from fedguard.simulated.course import ServerSimulation
from tests.simulated.scenes import STRAGGLER, Timetable, course, rate, releases, world

EQUAL = Network(compute=Speeds(seconds=1.0))
NOISY = Network(compute=Speeds(seconds=1.0, spread=0.3, jitter=0.4), link=Links(latency=0.01, loss=0.05))

# How fast: ten devices, a second each, one five times slower, .05 s for each message.


def test_bsp_waits_for_the_slowest():
    found = releases(STRAGGLER, bsp(10), 10, 50)
    assert [release.at for release in found] == pytest.approx([round * (5 + 2 * 0.05) for round in range(1, 51)])
    assert rate(found) == pytest.approx(10 / 5.1)


def test_asp_waits_for_nobody():
    found = releases(STRAGGLER, asp(), 10, 4000)
    assert rate(found) == pytest.approx(9 / 1.1 + 1 / 5.1, rel=0.005)


def test_bounded_delay_comes_to_bsp_where_the_straggler_lasts():
    found = releases(STRAGGLER, ssp(4), 10, 3000)
    assert rate(found, skipped=500) == pytest.approx(10 / 5.1, rel=0.01)
    begin = rate(found[:30])  # until the others are four ahead
    assert begin > 3 * 10 / 5.1


def test_bounded_delay_gains_where_slowness_passes():
    """BSP: a round takes 5.1 s unless nobody is slow in it, $.9^10$. Nobody can do better than ten that wait for nobody."""
    passing = Network(
        compute=Speeds(seconds=1.0, slow=Stragglers(share=0.1, factor=5.0, lasting=False)), link=Links(latency=0.05)
    )
    together = rate(releases(passing, bsp(10), 10, 400))
    none = 0.9**10
    assert together == pytest.approx(10 / (1.1 * none + 5.1 * (1 - none)), rel=0.04)
    bounded = rate(releases(passing, ssp(4), 10, 4000))
    alone = rate(releases(passing, asp(), 10, 4000))
    assert alone == pytest.approx(10 / (1.1 + 0.1 * 4), rel=0.04)
    assert 1.5 * together < bounded < alone


def test_no_delay_at_all_is_bsp():
    found = releases(STRAGGLER, ssp(0), 10, 500)
    assert [release.at for release in found[9::10]] == pytest.approx([round * 5.1 for round in range(1, 51)])


def test_a_round_of_jittery_devices_takes_the_expected_maximum():
    """$E[max_i X_i] = integral of 1 - P(X <= x)^n$ for lognormal X, by the trapezoidal rule."""
    sigma, n, rounds = 0.5, 10, 3000
    found = releases(Network(compute=Speeds(seconds=1.0, jitter=sigma)), bsp(n), n, rounds)
    x = np.linspace(1e-9, 40, 400_001)
    below = norm.cdf(np.log(x) / sigma) ** n
    mean, square = np.trapezoid(1 - below, x), np.trapezoid(2 * x * (1 - below), x)
    error = math.sqrt((square - mean**2) / rounds)
    assert found[-1].at / rounds == pytest.approx(mean, abs=4 * error)


def test_the_first_k_come_at_the_expected_order_statistic():
    """$E[X_(k)] = integral of P(fewer than k of n are below x)$."""
    from scipy.stats import binom

    sigma, n, k, rounds = 0.5, 10, 7, 3000
    found = releases(Network(compute=Speeds(seconds=1.0, jitter=sigma)), k_of_n(k), n, rounds)
    x = np.linspace(1e-9, 40, 400_001)
    fewer = binom.cdf(k - 1, n, norm.cdf(np.log(x) / sigma))
    mean, square = np.trapezoid(fewer, x), np.trapezoid(2 * x * fewer, x)
    error = math.sqrt((square - mean**2) / rounds)
    assert found[-1].at / rounds == pytest.approx(mean, abs=4 * error)


# Who.


def test_among_equals_each_is_dropped_about_as_often():
    found = releases(EQUAL, k_of_n(9), 10, 1000)
    late = Counter(one.client for release in found for one in release.of_fate(Fate.LATE))
    assert sum(late.values()) == 1000
    assert chisquare([late[device] for device in range(10)]).pvalue > 1e-4


def test_a_free_place_goes_to_any_of_the_idle_alike():
    found = releases(EQUAL, asp(), 12, 4000, crew=3)
    begun = Counter(one.client for release in found for one in release.begun)
    assert chisquare([begun[device] for device in range(12)]).pvalue > 1e-4
    at_work = 0
    for release in found:
        at_work += len(release.begun) - len(release.arrivals)
        assert at_work <= 3


@pytest.mark.parametrize("f", [0.2, 0.4, 0.6, 0.9])
def test_over_selection_hands_fast_malicious_devices_more_than_their_share(f):
    """130 chosen, the first 100 counted: malicious devices that answer first are min(1, 1.3 f) of a round."""
    malicious = frozenset(range(int(1000 * f)))
    network = Network(compute=Speeds(seconds=1.0, spread=0.3, jitter=0.2), malicious_pace=0.1)
    clients = Participation(total=1000, per_round=130)
    found = ServerSimulation(
        world(network, 1000, quick=malicious), k_of_n(100), 1000, lambda round: clients.choose(Rng(7).child(round), round),
        Rng(1),
    ).releases()  # fmt: skip
    arrived = [one.client in malicious for release in islice(found, 60) for one in release.arrivals]
    assert len(arrived) == 6000
    assert sum(arrived) / 6000 == pytest.approx(min(1.0, 1.3 * f), abs=0.02)


# What is kept, whatever happens.

BARRIERS = [bsp(6), k_of_n(4), k_of_n(6, deadline=1.5, least=3), ssp(0), ssp(2), asp(), buffer_barrier(3)]
THERE = ["always", "on_off(on=6, off=3)", "day_and_night(night=12, spread=24)"]


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), tau=st.integers(0, 5), devices=st.integers(1, 8), law=st.sampled_from(THERE[:2]))
def test_nobody_is_ever_more_than_tau_ahead(seed, tau, devices, law):
    """Counted from the releases alone: what has arrived before a training begins."""
    network = Network(
        compute=Speeds(seconds=1.0, spread=0.5, jitter=0.5), availability=load_registry().build("availability", law)
    )
    done = [0] * devices
    for release in releases(network, ssp(tau), devices, 150, seed=seed):
        for device in (one.client for one in release.begun):
            assert done[device] - min(done) <= tau
        for one in release.arrivals:
            done[one.client] += 1


@pytest.mark.parametrize("law", THERE)
@pytest.mark.parametrize("barrier", BARRIERS, ids=str)
def test_each_training_begins_once_and_ends_once(barrier, law):
    network = Network(
        compute=Speeds(seconds=1.0, spread=0.3, jitter=0.4),
        link=Links(loss=0.0 if barrier.fresh and barrier.deadline is None else 0.05),
        availability=load_registry().build(
            "availability", "always" if barrier.fresh and barrier.deadline is None else law
        ),
    )
    begun, ended, now = Counter(), Counter(), 0.0
    for number, release in enumerate(releases(network, barrier, 6, 300)):
        assert release.at >= now
        now = release.at
        begun.update(one.key for one in release.begun)
        arrived = [one.key for one in release.arrivals]
        ended.update([*arrived, *(one.key for one in release.missing)])
        assert set(ended) <= set(begun)
        for one in release.arrivals:
            assert one.began <= one.ended <= release.at
            assert one.version <= release.version
        assert all(stale == 0 for stale in release.staleness()) or not barrier.fresh
        if barrier.fresh:
            assert {turn for _, turn in arrived} <= {number + 1}
    assert set(begun.values()) == set(ended.values()) == {1}
    assert len(begun) - len(ended) <= 6


@pytest.mark.parametrize("law", THERE)
@pytest.mark.parametrize("barrier", [k_of_n(4, deadline=3.0), buffer_barrier(3)], ids=str)
def test_spans_tell_each_training_with_its_fate_and_none_while_another_goes_on(barrier, law):
    network = Network(
        compute=Speeds(seconds=1.0, spread=0.3, jitter=0.4),
        link=Links(loss=0.05),
        availability=load_registry().build("availability", law),
    )
    free, seen = Counter(), Counter()
    for release in releases(network, barrier, 6, 200):
        seen.update(one.fate for one in release.missing)
        assert release.of_fate(Fate.ARRIVED) == release.arrivals
        for one in sorted(release.ended, key=lambda span: span.began):
            assert free[one.client] <= one.began <= one.ended <= release.at
            free[one.client] = one.ended
    assert seen["lost"] > 0
    assert seen["late"] > 0 or not barrier.fresh
    assert seen["interrupted"] > 0 or "on_off" not in law


@pytest.mark.parametrize("law", THERE)
@pytest.mark.parametrize("barrier", [k_of_n(4, deadline=3.0), ssp(2), asp(), buffer_barrier(3)], ids=str)
def test_the_same_seed_has_the_same_course(barrier, law):
    network = Network(
        compute=Speeds(seconds=1.0, spread=0.3, jitter=0.4), availability=load_registry().build("availability", law)
    )
    for crew in (6, 3):
        one, same, other = (releases(network, barrier, 6, 100, crew=crew, seed=seed) for seed in (0, 0, 1))
        assert one == same
        assert one != other


def test_versions_count_the_aggregates():
    found = releases(NOISY, k_of_n(4, deadline=1.0, least=4), 6, 200)
    abandoned = [release.abandoned is not None for release in found]
    assert 0 < sum(abandoned) < 200
    for before, after in pairwise(found):
        assert after.version - before.version == (before.abandoned is None)


# Losses, deadlines, empty rounds.


def test_what_is_lost_is_told_and_nobody_waits_for_it_where_each_goes_on_by_itself():
    found = releases(Network(compute=Speeds(seconds=1.0, jitter=0.3), link=Links(loss=0.2)), asp(), 10, 2000)
    lost = sum(len(release.of_fate(Fate.LOST)) for release in found)
    assert lost / (lost + 2000) == pytest.approx(0.2, abs=4 * math.sqrt(0.16 / 2500))


def test_a_round_that_lacks_a_lost_update_stalls_without_a_deadline():
    with pytest.raises(StalledError, match=r"the server has 9 of the 10 updates that it waits for. Set a deadline"):
        releases(Network(link=Links(loss=0.02)), bsp(10), 10, 1000)


def test_with_a_deadline_those_that_have_arrived_are_enough_or_the_round_is_abandoned():
    """Three of ten take 5 s, the others 1 s: at 2 s seven have arrived."""
    network = Network(compute=Speeds(seconds=1.0, slow=Stragglers(share=0.3, factor=5.0)))
    for release, round in zip(releases(network, k_of_n(10, deadline=2.0, least=7), 10, 5), range(1, 6), strict=True):
        assert (release.at, len(release.arrivals), len(release.of_fate(Fate.LATE)), release.abandoned) == (
            2.0 * round,
            7,
            3,
            None,
        )
    for release, round in zip(releases(network, k_of_n(10, deadline=2.0, least=8), 10, 5), range(1, 6), strict=True):
        assert (release.at, len(release.arrivals)) == (2.0 * round, 7)
        assert release.abandoned == "7 updates arrived, of at least 8"
        assert release.version == 0


def test_what_arrives_at_the_deadline_itself_counts():
    for seed in range(10):
        (release,) = releases(EQUAL, k_of_n(10, deadline=1.0, least=10), 10, 1, seed=seed)
        assert release.abandoned is None


@pytest.mark.parametrize("barrier", [bsp(3), k_of_n(3), k_of_n(3, deadline=60.0)], ids=str)
def test_a_round_for_which_nobody_is_chosen_is_abandoned_at_once(barrier):
    rounds = {1: (), 3: (), 4: ()}
    there = ServerSimulation(world(EQUAL, 3), barrier, 3, lambda round: rounds.get(round, (0, 1, 2)), Rng(0))
    found = list(islice(there.releases(), 6))
    assert [release.abandoned for release in found] == [
        "nobody was chosen",
        None,
        *["nobody was chosen"] * 2,
        None,
        None,
    ]
    assert [release.at for release in found] == [0.0, 1.0, 1.0, 1.0, 2.0, 3.0]


def test_rounds_for_which_nobody_is_ever_chosen_end():
    there = ServerSimulation(world(EQUAL, 3), bsp(3), 3, lambda round: (), Rng(0))
    assert len(list(islice(there.releases(), 5000))) == 5000
    with pytest.raises(StalledError):
        list(ServerSimulation(world(EQUAL, 3), asp(), 3, lambda round: (), Rng(0)).releases())


def test_those_who_go_on_by_themselves_are_of_the_first_round_that_has_any():
    rounds = {1: (), 2: (), 3: (1,)}
    there = ServerSimulation(world(EQUAL, 3), asp(), 3, lambda round: rounds.get(round, (0, 1, 2)), Rng(0))
    first = next(there.releases())
    assert [one.client for one in first.arrivals] == [1]


def test_k_of_n_waits_for_those_who_are_chosen_where_these_are_fewer():
    for chosen in (1, 4, 7, 9):
        (release,) = releases(EQUAL, k_of_n(7), 10, 1, crew=chosen)
        assert len(release.arrivals) == min(7, chosen)
        assert release.abandoned is None
    (release,) = releases(EQUAL, k_of_n(7, deadline=60.0, least=3), 10, 1, crew=2)
    assert (release.abandoned, release.at) == ("2 updates arrived, of at least 3", 1.0)


# Devices that come and go.


def timed(stretches) -> Network:
    """A training takes 5 s."""
    return Network(compute=Speeds(seconds=5.0), availability=Timetable(stretches))


def test_who_is_not_there_starts_when_it_comes():
    (release,) = releases(timed({0: [(7.0, 100.0)]}), bsp(2), 2, 1)
    assert [(one.client, one.began, one.ended) for one in release.arrivals] == [(1, 0.0, 5.0), (0, 7.0, 12.0)]


def test_who_leaves_loses_its_work_and_where_each_goes_on_by_itself_starts_again_when_it_is_back():
    found = releases(timed({0: [(0.0, 3.0), (10.0, 100.0)]}), asp(), 2, 4)
    assert [one.key for one in found[0].missing] == [(0, 1)]
    assert [(one.client, one.turn, one.began, one.ended) for release in found for one in release.arrivals if one.client == 0] == [
        (0, 2, 10.0, 15.0)
    ]  # fmt: skip
    assert {one.key for one in found[0].begun} == {(0, 1), (1, 1)}
    assert [one.key for one in found[1].begun] == [(1, 2)]


def test_under_bounded_delay_who_has_left_holds_the_others_up_until_it_has_done_its_training():
    found = releases(timed({0: [(0.0, 3.0), (50.0, 1000.0)]}), ssp(1), 2, 6)
    of_other = [release.at for release in found if release.arrivals[0].client == 1]
    assert of_other[:3] == [5.0, 10.0, 60.0]  # two ahead it waits until 55


def test_in_a_common_round_who_has_left_is_out_until_the_next():
    network = timed({0: [(0.0, 3.0), (4.0, 100.0)]})
    found = releases(network, k_of_n(2, deadline=20.0), 2, 2)
    assert (found[0].at, [one.key for one in found[0].missing], [one.client for one in found[0].arrivals]) == (
        20.0,
        [(0, 1)],
        [1],
    )
    assert (found[1].at, found[1].missing, len(found[1].arrivals)) == (25.0, (), 2)


def test_a_place_that_somebody_has_left_goes_to_another():
    """One place, three devices, of whom one is always gone before it is done."""
    comes = [(k * 4.0, k * 4.0 + 3.0) for k in range(500)]
    found = releases(timed({0: comes}), asp(), 3, 60, crew=1)
    assert {one.client for release in found for one in release.arrivals} == {1, 2}
    assert sum(len(release.of_fate(Fate.INTERRUPTED)) for release in found) > 10


def test_a_round_in_which_nobody_is_there_ends_at_its_deadline():
    never = {device: [] for device in range(3)}
    found = releases(timed(never), k_of_n(3, deadline=30.0), 3, 4)
    assert [(release.at, release.begun) for release in found] == [(30.0 * round, ()) for round in range(1, 5)]
    assert all(release.abandoned for release in found)


@pytest.mark.parametrize("barrier", [bsp(3), k_of_n(2), ssp(2), asp(), buffer_barrier(2)], ids=str)
def test_where_nobody_ever_comes_back_the_training_is_stalled(barrier):
    gone = {device: [(0.0, 12.0)] for device in range(3)}
    with pytest.raises(StalledError, match="nobody computes or sends any more"):
        releases(timed(gone), barrier, 3, 100)


def test_in_the_long_run_updates_and_interruptions_come_as_renewal_theory_says():
    """A training of c seconds ends within a stretch of mean a with the chance $e^{-c/a}$, the next as well, and so on:
    $1 / ((a + b)(e^{c/a} - 1))$ updates a second of each device, and one interruption in each stretch."""
    a, b, c, devices = 20.0, 10.0, 5.0, 40
    network = Network(
        compute=Speeds(seconds=c), availability=load_registry().build("availability", f"on_off(on={a}, off={b})")
    )
    found = releases(network, asp(), devices, 20_000)
    expected = devices / ((a + b) * (math.exp(c / a) - 1))
    assert rate(found) == pytest.approx(expected, rel=0.03)
    interrupted = sum(len(release.of_fate(Fate.INTERRUPTED)) for release in found)
    assert interrupted / found[-1].at == pytest.approx(devices / (a + b), rel=0.03)


def test_at_night_all_work_and_by_day_nobody():
    law = "day_and_night(night=8, spread=0)"
    network = Network(compute=Speeds(seconds=600.0), availability=load_registry().build("availability", law))
    found = releases(network, asp(), 4, 4 * 48 * 3)
    hours = np.array([release.at / 3600 % 24 for release in found])
    assert np.all((hours > 0) & (hours <= 8))
    assert found[-1].at == (2 * 24 + 8) * 3600  # 48 trainings of each fit into a night


# Effort.


@pytest.mark.slow
def test_an_event_costs_the_same_among_many_devices():
    """Seconds of CPU for 2,000 updates, the least of three; a look at each of 30,000 devices would take 50 times as long."""

    def seconds(devices: int, barrier: Barrier, crew: int) -> float:
        running = course(EQUAL, barrier, devices, crew=crew).releases()
        list(islice(running, crew + 1))
        spent = []
        for _ in range(3):
            begun = time.process_time()
            list(islice(running, 2000))
            spent.append(time.process_time() - begun)
        return min(spent)

    for barrier, part in ((asp(), 2), (ssp(4), 1)):
        assert seconds(30_000, barrier, 30_000 // part) < 6 * seconds(300, barrier, 300 // part)
