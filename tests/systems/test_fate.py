"""FATE's profile: the sum is the weighted mean, one silent party costs it, and what the arbiter has besides is told."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from fedguard.architectures.masking.inputs import Inputs
from fedguard.architectures.systems.fate import FATE, PairwiseMasks
from fedguard.bench.running.card import threat_card
from fedguard.contracts import Fate, SentRound, Sight
from fedguard.secagg.encoding import Encoding
from tests.systems.scenes import cell, models, off, reports, scene

UNLIKE = {"task": {"partition": {"kind": "dirichlet", "alpha": 0.3}}, "training": {"rounds": 2}}
ROUNDED = 5e-3


def test_it_is_the_mean_weighted_by_examples_but_for_rounding():
    ours = models("fate", **UNLIKE)
    assert off(ours, models(defense="weighted_mean", **UNLIKE)) < ROUNDED
    assert off(ours, models(**UNLIKE)) > 10 * ROUNDED


def one_round(parties=5):
    """The receiver, what was sent, and the updates ``[n, d]``, of length one."""
    _, setup = scene("fate", clients={"total": parties})
    updates = torch.randn(parties, setup.task.dim, generator=torch.Generator().manual_seed(0))
    updates /= updates.norm(dim=1, keepdim=True)
    sent = SentRound(1, torch.zeros(setup.task.dim), updates.clone(), tuple(range(parties)))
    return setup, PairwiseMasks().receiver(setup), sent, updates


def test_the_sum_is_exact_to_the_step_of_the_encoding():
    setup, receiver, sent, updates = one_round()
    sizes = torch.tensor(setup.task.sizes, dtype=torch.float64)
    received = receiver.receive(sent)
    true = (sizes[:, None] * updates.double()).sum(0) / sizes.sum()
    step = Encoding(largest_weight=int(sizes.max())).error(5, setup.task.dim).worst / sizes.sum()
    assert float((received.rows[0] - true).abs().max()) <= step + 1e-7
    assert received.behind == ((0, 1, 2, 3, 4),) and received.samples.tolist() == [sizes.sum()]


def test_what_a_party_sends_tells_nothing_without_all_others():
    """A masked vector, and each sum of fewer than all, looks uniform on the ring: its top bits are fair, at five deviations."""
    setup, receiver, sent, _ = one_round()
    receiver.receive(sent)
    encoding = Encoding(largest_weight=max(setup.task.sizes))
    inputs = Inputs(sent, encoding, None, setup.task.sizes, setup.rng.child("masking"), "all")
    messages = [receiver.message(inputs, client, range(5), sent) for client in range(5)]
    d = setup.task.dim
    for size in (1, 2, 3, 4):
        for some in combinations(messages, size):
            total = np.sum(some, axis=0, dtype=np.uint32)
            assert abs(float((total >> 31).mean()) - 0.5) < 5 * 0.5 / d**0.5
            plain = inputs.encode_update(0)[:-1].view(np.int32).astype(float)
            assert abs(float(np.corrcoef(total.view(np.int32).astype(float), plain)[0, 1])) < 5 / d**0.5
    whole = np.sum(messages, axis=0, dtype=np.uint32).view(np.int32)
    assert np.abs(whole).max() < 2**24  # and of all five the masks cancel


def test_masks_are_new_in_each_round():
    setup, receiver, sent, _ = one_round()
    receiver.receive(sent)
    inputs = Inputs(sent, Encoding(largest_weight=max(setup.task.sizes)), None, setup.task.sizes, setup.rng, "all")
    later = replace(sent, round=2)
    first, second = (receiver.message(inputs, 0, range(5), one) for one in (sent, later))
    assert hashlib.sha256(first).digest() != hashlib.sha256(second).digest()
    assert abs(float(((first - second) >> 31).mean()) - 0.5) < 5 * 0.5 / setup.task.dim**0.5


def test_one_silent_party_costs_the_sum():
    """The chance of a sum is (1 - p)^n, and the very same rounds have one under the masks of `server`."""
    settings = {
        "clients": {"total": 12},
        "protocol": {"dropout": {"rate": 0.05}},
        "training": {"rounds": 40, "lr": 1e-9},
    }
    found = list(reports("fate", evaluation={"every": 40}, **settings))
    summed = sum(report.abandoned is None for report in found)
    chance = 0.95**12
    assert abs(summed - 40 * chance) < 4 * (40 * chance * (1 - chance)) ** 0.5
    for report in found:
        assert (report.abandoned is None) == (report.of_fate(Fate.SILENT) == ())
        assert report.clients == (tuple(range(12)) if report.abandoned is None else ())
    lost = next(report for report in found if report.abandoned)
    assert (
        lost.abandoned == f"{len(lost.of_fate(Fate.SILENT))} of 12 parties sent nothing, and their masks do not cancel"
    )


def test_one_malicious_party_that_is_silent_stops_every_round():
    attacked = list(reports("fate", attack="dropout", clients={"malicious": 1}, training={"rounds": 3}))
    assert all(report.abandoned and not report.clients for report in attacked)
    assert torch.equal(attacked[0].model, attacked[-1].model)


def test_an_update_that_is_not_finite_costs_it_too():
    attacked = list(reports("fate", attack="nan", clients={"malicious": 1}, training={"rounds": 2}))
    assert all(report.abandoned for report in attacked)


def test_the_weights_that_it_tells_stand_among_the_sights():
    card = threat_card(cell("fate"))
    assert card["server_shown"] == ["sum", "model", "masked", "weights"]
    assert Sight.HONEST_UPDATES not in FATE.exposes.clients
    assert "weights" not in threat_card(cell("server", protocol={"secure_aggregation": "full"}))["server_shown"]


@pytest.mark.parametrize("parties", [3, 7])
def test_what_is_sent_is_counted(parties):
    (report,) = reports("fate", clients={"total": parties}, training={"rounds": 1})
    d = len(report.model)
    assert report.masked.bytes_up == parties * (32 + 4 * d + 8)
    assert report.masked.bytes_down == 32 * parties * (parties - 1)
