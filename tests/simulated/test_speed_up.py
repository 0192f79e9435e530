"""More workers on the same work, each waiting for all: the closed forms of the speed-up, and of what stragglers take of it."""

from __future__ import annotations

from itertools import islice
from math import sqrt

import numpy as np
import pytest

import fedguard as fg
from fedguard.contracts import Links, Network, Speeds
from fedguard.rng import Rng
from fedguard.simulated.barriers import bsp
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.world import World, least_seconds
from tests.root import ROOT
from tests.simulated import scenes

EXAMPLE = ROOT / "examples" / "speed_up.yaml"


def rounds(n: int, network: Network, count: int, work: float = 1.0, seed: int = 0) -> np.ndarray:
    """Seconds of each of so many rounds of n workers, between whom the work is dealt evenly."""
    world = World(network, [work / n] * n, 1000, Rng(seed).child("network"))
    found = ServerSimulation(world, bsp(n), n, lambda round: range(n), Rng(seed).child("course")).releases()
    return np.diff([0.0, *(release.at for release in islice(found, count))])


@pytest.mark.parametrize("n", [1, 3, 10])
def test_a_round_of_exponential_work_takes_the_harmonic_number(n):
    """$E[max of n] = 1 + 1/2 + ... + 1/n$ with variance $1 + 1/4 + ... + 1/n^2$."""
    found = rounds(n, Network(compute=Speeds(seconds=1.0, jitter="exponential")), 1000, work=n)
    mean, variance = (sum(1 / k**power for k in range(1, n + 1)) for power in (1, 2))
    assert found.mean() == pytest.approx(mean, abs=4.5 * sqrt(variance / 1000))
    assert found.var() == pytest.approx(variance, rel=0.35)


@pytest.mark.parametrize("c", [0.0, 0.01, 0.2])
def test_the_speed_up_over_n_flattens_by_communication(c):
    """A message takes c/2 of the work: $n / (1 + c n)$ times as fast as one worker that need not communicate."""
    for n in (1, 2, 7, 40):
        each = rounds(n, Network(compute=Speeds(seconds=1.0), link=Links(latency=c / 2)), 3)
        assert 1 / each == pytest.approx([n / (1 + c * n)] * 3, rel=1e-6)


def test_no_device_is_promised_a_least_time_where_it_may_be_as_quick_as_it_likes():
    network = Network(compute=Speeds(seconds=1.0, jitter="exponential"), link=Links(latency=0.5))
    assert least_seconds(network, [3.0], 1000) == [1.0]
    assert scenes.world(network, 1).compute(0, 1) != scenes.world(network, 1).compute(0, 2)


def test_the_example_follows_both(tmp_path):
    """Whole trainings: T/n + 2 L, and more where the slowest of n exponential times is waited for."""
    sizes = "matrix.clients.total=[1, 4, 16]"
    run = fg.run(EXAMPLE, store=tmp_path, jobs=1, overrides=["seeds=1", "training.rounds=2", sizes])
    seconds = {
        (int(row["clients.total"]), row["network.compute.jitter"]): row["simulated_seconds"] / 2 for row in run.rows()
    }
    even = {n: took for (n, jitter), took in seconds.items() if jitter != "exponential"}
    whole = even[1] - 0.5
    for n, took in even.items():
        assert took == pytest.approx(whole / n + 0.5, abs=0.02), "up to an example that does not divide"
    assert seconds[16, "exponential"] > 1.3 * even[16]
