"""A node that changes the sums it passes on: one more vector in the sum, which no check of own updates finds."""

from __future__ import annotations

import pytest
import torch

from fedguard.architectures.systems import sums
from fedguard.contracts import Sight
from fedguard.contracts.channels import PARTIAL_SUMS
from fedguard.errors import NotObservable
from fedguard.registry import load_registry
from tests.attacks.test_attacks import normal, view
from tests.systems.scenes import cell, models, reports, scene

ATTACKED = {"attack": "partial_sum", "clients": {"malicious": 1}, "training": {"rounds": 1}}
LONG = {"clients": {"malicious": 1}, "training": {"rounds": 10}}
SYSTEMS = ("all_reduce", "all_reduce(topology='hierarchical', group=3)", "all_reduce(masks=24)")


def updates_of(system, monkeypatch, seed, **settings):
    """What was sent in a first round, the model before it and after it, and who is malicious."""
    kept = []
    received = sums.SumRun.receive_updates

    def kept_back(self, sent):
        kept.append((sent, sent.updates.clone()))
        return received(self, sent)

    monkeypatch.setattr(sums.SumRun, "receive_updates", kept_back)
    before, after = models(system, seed, **settings)
    (sent, updates), (node,) = kept[0], scene(system, seed, **settings)[1].malicious
    return sent, updates, after - before, node


@pytest.mark.parametrize(
    ("system", "width", "rounding"), [("all_reduce", 650, 1e-6), ("all_reduce(masks=24)", 651, 1e-5)]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_in_a_ring_it_is_one_more_vector_but_for_the_nodes_own_chunk(system, width, rounding, seed, monkeypatch):
    """Under masks, where the lie is made of the node's own update, the sum counts no more examples than there are."""
    sent, updates, moved, node = updates_of(system, monkeypatch, seed, **ATTACKED)
    honest = updates[[row for row, client in enumerate(sent.senders) if client != node]]
    lie = -2 * 6 * (honest.mean(0) if width == 650 else updates[sent.senders.index(node)])
    sizes = [width // 6 + (chunk < width % 6) for chunk in range(6)]
    own = torch.zeros(650, dtype=torch.bool)
    own[sum(sizes[:node]) : sum(sizes[: node + 1])] = True
    expected = (updates.sum(0) + torch.where(own, 0, lie)) / 6
    assert torch.allclose(moved, expected, atol=rounding)
    assert float(moved[~own] @ honest.mean(0)[~own]) < 0 < float(moved[own] @ honest.mean(0)[own])


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_ruins_the_model_and_no_check_of_own_updates_finds_it(system):
    """What each node puts in is as long as what the others do, to a few per cent, in every round; and honest."""
    found = list(reports(system, attack="partial_sum", **LONG))
    clean = list(reports(system, training={"rounds": 10}))
    assert clean[-1].evaluation.accuracy > 0.8 and found[-1].evaluation.accuracy < 0.3
    assert all(0.8 < report.aggregate["hostile_length"] < 1.25 for report in found)
    loud = list(reports(system, attack="sign_flip(scale=11)", **LONG))
    assert all(
        report.aggregate["hostile_length"] > 5 for report in loud
    )  # who does the same by its own update is heard


@pytest.mark.parametrize("system", ["all_reduce", "all_reduce(masks=20)"])
def test_a_sum_that_is_passed_on_and_not_finite_is_none(system, monkeypatch):
    from fedguard.attacks.poisoning.partial_sum import PartialSum

    monkeypatch.setattr(PartialSum, "add", lambda self, nothing, view, crafted: torch.full_like(crafted, torch.nan))
    (report,) = reports(system, **ATTACKED)
    assert report.abandoned == "a node passed on a sum that was not finite"
    assert torch.equal(models(system, **ATTACKED)[0], report.model)


def test_nothing_but_a_sum_goes_through_a_root_or_to_all():
    """Node 0 of `reduce_broadcast` adds up; a leaf passes nothing on. To all, each sends its own."""
    root = "all_reduce(topology='reduce_broadcast')"
    hostile = {seed: min(scene(root, seed, **ATTACKED)[1].malicious) for seed in range(40)}
    leaf, at_root = (next(seed for seed, node in hostile.items() if (node == 0) is first) for first in (False, True))
    clean = ATTACKED | {"attack": "none"}
    assert torch.equal(models(root, leaf, **ATTACKED), models(root, leaf, **clean))
    assert not torch.allclose(models(root, at_root, **ATTACKED), models(root, at_root, **clean), atol=1e-3)


@pytest.mark.parametrize("system", ["server", "all_reduce(topology='all_to_all')", "mapreduce", "fate"])
def test_it_is_refused_where_nobody_passes_sums_on(system):
    reasons = cell(system, attack="partial_sum", clients={"malicious": 1}).verdict.reasons
    assert any(reason.startswith("partial_sum lies about the sums that its nodes pass on") for reason in reasons)


def test_it_reads_no_more_than_it_declares():
    attack = load_registry().build("attack", "partial_sum")
    honest = normal(6, 30)
    seen = view(honest, sees=Sight.HONEST_UPDATES | Sight.OWN_DATA)
    assert torch.allclose(
        attack.report(PARTIAL_SUMS, seen.own, seen, seen.own)[0], -2 * seen.n / seen.f * honest.mean(0), rtol=1e-5
    )
    assert attack.report(PARTIAL_SUMS, seen.own, view(honest, sees=Sight.OWN_DATA), seen.own).isfinite().all()
    with pytest.raises(NotObservable):
        attack.report(PARTIAL_SUMS, seen.own, view(honest, sees=Sight.NOTHING), seen.own)


def test_what_is_added_under_masks_is_rounded_by_the_seed_of_the_trial():
    """Else no trial could be repeated: rounding drew from the operating system."""
    first, again = (models("all_reduce(masks=24)", 0, **ATTACKED)[-1] for _ in range(2))
    assert torch.equal(first, again)
