"""Simulated time passes in whole nanoseconds, by rank, and by lot among equals."""

from __future__ import annotations

from collections import Counter

import pytest
from scipy.stats import chisquare

from fedguard.rng import Rng
from fedguard.simulated.agenda import EventQueue, Rank


def run(agenda: EventQueue) -> None:
    while agenda.step():
        pass


def test_events_happen_in_the_order_of_time():
    agenda, seen = EventQueue(Rng(0)), []
    for delay in (3.0, 1.0, 2.0, 0.0):
        agenda.after(delay, lambda: seen.append(agenda.now))
    assert len(agenda) == 4
    run(agenda)
    assert seen == [0.0, 1.0, 2.0, 3.0]
    assert not agenda.step()


def test_at_one_time_what_arrives_goes_first_and_what_starts_last():
    for seed in range(20):
        agenda, seen = EventQueue(Rng(seed)), []
        for rank in (Rank.START, Rank.DECIDE, Rank.DELIVER, Rank.FINISH):
            agenda.after(1.0, seen.append, rank, rank=rank)
        run(agenda)
        assert seen == [Rank.DELIVER, Rank.FINISH, Rank.DECIDE, Rank.START]


def test_times_are_whole_nanoseconds_so_that_equal_sums_are_equal():
    """$.1 + .2 != .3$ in floating point; here a message that goes by two hops arrives when the direct one is awaited."""
    agenda, seen = EventQueue(Rng(0)), []
    agenda.after(0.3, seen.append, "awaited", rank=Rank.DECIDE)
    agenda.after(0.1, lambda: agenda.after(0.2, seen.append, "arrived", rank=Rank.DELIVER))
    run(agenda)
    assert seen == ["arrived", "awaited"]
    assert agenda.now == 0.3


def test_among_equals_each_is_as_likely_to_be_last():
    last = Counter()
    for seed in range(1000):
        agenda, seen = EventQueue(Rng(seed)), []
        for number in range(10):
            agenda.after(1.0, seen.append, number)
        run(agenda)
        assert sorted(seen) == list(range(10))
        last[seen[-1]] += 1
    assert chisquare([last[number] for number in range(10)]).pvalue > 1e-4


def test_the_order_of_equals_is_that_of_the_seed():
    def order(seed: int) -> list[int]:
        agenda, seen = EventQueue(Rng(seed)), []
        for number in range(10):
            agenda.after(1.0, seen.append, number)
        run(agenda)
        return seen

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_a_queue_waits_as_long_as_the_theory_of_queues_says():
    """M/M/1 with arrivals at rate 1/2 and service at rate 1: the mean wait is $rho / (mu - lambda) = 1$, half of all wait."""
    agenda, draw = EventQueue(Rng(0)), Rng(1).numpy()
    customers, waits, queue, busy = 60_000, [], [], [False]
    gaps, services = draw.exponential(2.0, customers).tolist(), draw.exponential(1.0, customers).tolist()

    def come(number: int) -> None:
        if number + 1 < customers:
            agenda.after(gaps[number], come, number + 1, rank=Rank.START)
        queue.append(agenda.now)
        serve()

    def serve() -> None:
        if not busy[0] and queue:
            busy[0] = True
            waits.append(agenda.now - queue.pop(0))
            agenda.after(services[len(waits) - 1], end)

    def end() -> None:
        busy[0] = False
        serve()

    agenda.after(0.0, come, 0)
    run(agenda)
    assert len(waits) == customers
    assert sum(waits) / customers == pytest.approx(1.0, rel=0.06)
    assert sum(wait > 0 for wait in waits) / customers == pytest.approx(0.5, abs=0.015)
