"""How long a suite takes is told from a few CPU seconds of measuring, however large its data."""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import pytest

from fedguard import api
from fedguard.bench.running import estimate
from fedguard.bench.running.estimate import START, CellCost
from fedguard.bench.running.limit import TrialTimeout, at_most
from fedguard.bench.running.workbench import Workbench


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """30,000 small images in a file."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, 30_000)
    x = (draw.random((len(y), 8, 8)) + y[:, None, None]).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "large.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x[:5000], y_test=y[:5000])
    return path


def plan(path, **training):
    data = {"name": "npz", "file": str(path), "value_range": [0, 11]}
    return api.lay_out(
        {
            "task": {"data": data, "model": {"name": "mlp", "hidden": [64]}},
            "clients": {"total": 10, "malicious": 2},
            "training": {"rounds": 40, "batch_size": 16} | training,
            "seeds": 3,
            "matrix": {"attack": ["none", "sign_flip"], "defense": ["mean", "median"]},
        }
    )[1]


def test_large_data_are_measured_on_a_part_within_the_budget(large):
    laid = plan(large)
    bench = Workbench()
    estimate._run(laid.cells[0], 0, bench, warm=False)  # loads libraries, and deals
    whole = estimate._run(laid.cells[0], 0, bench, warm=True)
    budget = 0.8 * (whole.round + whole.once)  # too little for the whole of a cell, on any machine
    begun = time.process_time()
    found = estimate.estimate(laid, {}, 2, budget=budget)
    spent = time.process_time() - begun
    assert spent < budget + 2  # dealing and loading
    assert found.share < 1 and found.seconds > START


def test_the_cost_is_the_line_through_the_last_shares(large, monkeypatch):
    """Of made-up costs a + b s, cheap ones are measured whole, dear ones extrapolated; both come out exactly."""
    laid = plan(large)
    tried = []

    def cost(cell, seed, bench, warm):
        share = getattr(bench, "_share", 1.0)
        tried.append(share)
        return CellCost(0.01 + price * share, 0.002 + 0.5 * price * share)

    monkeypatch.setattr(estimate, "_run", cost)
    for price, share in ((0.02, 1.0), (100.0, 1 / 64), (1e6, 1 / 256)):
        tried.clear()
        found = estimate.estimate(laid, {}, 1)
        per_trial = 40 * (0.01 + price) + 0.002 + 0.5 * price
        assert found.seconds == pytest.approx(START + len(laid.cells) * 3 * per_trial)
        assert (found.share, max(tried)) == (share, share)


def test_what_is_done_once_is_not_counted_for_each_round(large, monkeypatch):
    """Such as holding a network to the contract of DP-SGD, which takes a hundred rounds' time."""

    def spend(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def trial(cell, seed, controls, bench, progress):
        begun = time.process_time()
        spend(0.3)
        for number in range(cell.training.rounds):
            spend(0.02)
            progress(number + 1, cell.training.rounds)
        spend(0.1)
        cost = {"cpu_seconds": time.process_time() - begun, "stages": {"measuring": {"cpu_seconds": 0.1}}}
        return ({"cost": cost},)

    monkeypatch.setattr(estimate, "run_trial", trial)
    found = estimate._run(plan(large).cells[0], 0, Workbench(), warm=True)
    assert found.round == pytest.approx(0.02, abs=0.01) and found.once == pytest.approx(0.4, abs=0.03)
    assert estimate._run(plan(large).cells[0], 0, Workbench(), warm=False).once == 0.1  # the rest may be libraries


def test_what_cannot_be_measured_is_said_to_take_longer(large, monkeypatch):
    def never(cell, seed, bench, warm):
        while True:
            pass

    monkeypatch.setattr(estimate, "_run", never)
    begun = time.process_time()
    found = estimate.estimate(plan(large), {}, 1, budget=0.3)
    assert found.at_least and time.process_time() - begun < 0.8

    def first(cell, seed, bench, warm):
        if bench._share > 1 / 1024:
            raise TrialTimeout
        return CellCost(0.25, 0.5)

    monkeypatch.setattr(estimate, "_run", first)
    found = estimate.estimate(plan(large), {}, 1)
    assert found.at_least and found.seconds == pytest.approx(START + len(plan(large).cells) * 3 * (40 * 0.25 + 0.5))


def test_a_limit_in_cpu_time_does_not_count_waiting():
    with at_most(0.05, of_cpu=True):
        time.sleep(0.2)
    with pytest.raises(TrialTimeout), at_most(0.05, of_cpu=True):
        while True:
            pass


class Finalized:
    def __init__(self, slow):
        self.slow = slow

    def __del__(self):
        self.slow()


class Key:
    """What a weak dictionary can hold."""


def by_finalizer(slow):
    one = Finalized(slow)
    del one


def by_weak_dictionary(slow):
    weak, key = weakref.WeakKeyDictionary(), Key()
    weak[key] = Finalized(slow)
    del key


def by_collector(slow):
    def long(phase, info):
        if phase == "start":
            slow()

    gc.callbacks.append(long)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(long)


@pytest.mark.parametrize("collect", [by_finalizer, by_weak_dictionary, by_collector])
def test_an_alarm_while_an_object_is_collected_is_not_lost(collect):
    """What is raised there is printed and dropped, so that the block would go on to its end."""
    slowed, until = [], time.process_time() + 0.2

    def slow():
        while not slowed and time.process_time() < until:
            pass

    with pytest.raises(TrialTimeout), at_most(0.05, of_cpu=True):
        collect(slow)  # the alarm comes in the midst of it
        slowed.append(True)
        while time.process_time() < until + 3:
            pass
    assert slowed
