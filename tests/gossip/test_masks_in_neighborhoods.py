"""Masks among those whom a node hears: the sum is right, a message tells nothing, and what masks cannot hide is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from fedguard.architectures.gossip.listening import sources
from fedguard.architectures.gossip.masked import MaskedSums
from fedguard.contracts import Observer
from fedguard.privacy.determined import find_exposed_vectors
from fedguard.secagg.encoding import Encoding
from fedguard.simulated.topology import topology
from tests.systems.scenes import cell, models, off, reports, scene


@pytest.mark.parametrize("system", [{"name": "d_psgd"}, {"name": "sgp", "graph": "exponential"}, {"name": "dsgt"},
                                    {"name": "d2", "weight": 0.5}, {"name": "defacto", "phase": 2}], ids=str)  # fmt: skip
def test_masks_change_nothing_but_the_last_digits(system):
    """20 bits for coordinates up to 4 are steps of 8e-6; updates of these rounds are some .01 a coordinate."""
    plain, masked = models(system), models({**system, "masks": 20})
    assert 0 < off(masked, plain) < 1e-3
    assert off(models({**system, "masks": 24}), plain) < off(masked, plain)


def sums(bits: int = 20, clip: float = 4.0):
    _, setup = scene("d_psgd", clients={"total": 6})
    return MaskedSums(setup, Encoding(bits=bits, clip=clip)), setup.task.dim


def vectors(nodes, dim):
    return {node: torch.randn(dim, generator=torch.Generator().manual_seed(node)) for node in nodes}


def test_the_sum_is_that_of_a_plain_loop():
    masks, dim = sums()
    sent, weights = vectors([1, 3, 4], dim), {1: 0.2, 3: 0.5, 4: 0.1}
    masks.exchange_keys([1, 3, 4])
    found = masks.total(0, 1, sent, weights, ())
    plain = sum(weights[node] * sent[node].double() for node in sent)
    assert (found - plain).abs().max() <= 3 * 4 / (2**19 - 1), "one step for each of three"
    told = masks.report()
    assert told.sessions == 1 and told.anonymity == 3 and told.error < 1e-4 and told.clipped == 0
    assert told.bytes_up == 3 * 4 * dim + 6 * 32, "three vectors, and each the keys of two others"


def test_the_anonymity_of_a_round_is_that_of_its_smallest_neighborhood():
    """Of four, two and three values; the order in which they are summed is no matter."""
    for order in itertools.permutations(((0, (1, 2, 3, 4)), (5, (3, 4)), (2, (0, 1, 5)))):
        masks, dim = sums()
        for exchange, (node, senders) in enumerate(order):
            masks.exchange_keys(list(senders))
            masks.total(node, exchange, vectors(senders, dim), dict.fromkeys(senders, 0.2), ())
        told = masks.report()
        assert (told.sessions, told.anonymity) == (3, 2)


def message(masks, dim, sender, node=0, exchange=1, vector=None, senders=(1, 3, 4)):
    masks.exchange_keys(list(senders))
    return masks.message(node, exchange, sender, torch.zeros(dim) if vector is None else vector, senders, False)


def test_a_message_tells_nothing_of_the_value():
    """Uniform in the ring, whatever it hides: the mean of all bits, and no correlation with a large value."""
    masks, dim = sums()
    value = 3.9 * torch.randn(dim, generator=torch.Generator().manual_seed(5)).sign()
    said = message(masks, dim, 1, vector=value)
    bits = np.unpackbits(said.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / bits.size**0.5
    signed = said.view(np.int32).astype(float)
    assert abs(np.corrcoef(signed, value.numpy())[0, 1]) < 5 / dim**0.5


def test_each_sum_has_masks_of_its_own():
    """Two of one pair with the same masks would show the difference of two values."""
    masks, dim = sums()
    said = [message(masks, dim, 1, node, exchange) for node in (0, 2) for exchange in (1, 2)]
    assert all((one != other).mean() > 0.99 for one, other in combinations(said, 2))
    assert (sum(message(masks, dim, one) for one in (1, 3, 4)) == 0).all(), "and they cancel"


def test_nobody_takes_masks_out_of_less_than_all():
    masks, dim = sums()
    two = message(masks, dim, 1) + message(masks, dim, 3)
    assert (np.abs(two.view(np.int32)) > 2**24).mean() > 0.9


@pytest.mark.parametrize("others", [2, 3, 4])
def test_single_messages_add_nothing_to_the_sum(others):
    """Exact algebra over values and masks: messages of all, each with its masks, determine no value, but with all masks
    known but one value's; and their sum."""
    pairs = list(combinations(range(others), 2))
    rows = []
    for sender in range(others):
        row = [int(sender == one) for one in range(others)]
        rows.append(row + [(sender == i) - (sender == j) for i, j in pairs])
    assert not find_exposed_vectors(rows) & set(range(others))
    total = [1] * others + [0] * len(pairs)
    assert np.array_equal(np.sum(rows, 0), total)
    for k in range(1, others):
        mine = set(range(k)) | {others + at for at, pair in enumerate(pairs) if set(pair) & set(range(k))}
        assert find_exposed_vectors(rows, mine) & set(range(others)) == ({others - 1} if k == others - 1 else set())


def test_what_comes_to_a_node_is_its_sum_alone():
    """Of a real training: what the nodes that look have is one vector each, and that is the sum by the graph's weights."""
    made, setup = scene({"name": "d_psgd", "graph": "torus", "masks": 24}, clients={"total": 9})
    (report, *_) = made.architecture.run(replace(setup, observer=Observer(1, seat=(0, 4))))
    (watched,), graph = report.watched, made.architecture.seats(setup)
    assert len(watched.heard) == 2
    values = (watched.models + watched.sent.updates).double()
    for row, node in zip(watched.heard, (0, 4), strict=True):
        heard = sources(graph.at(0), node)
        assert len(heard) == 4
        assert (row - torch.from_numpy(graph.at(0)[node, heard]) @ values[heard]).abs().max() < 1e-5


def test_a_lie_stands_in_the_sum():
    """Under masks nobody sees it: a sign flip moves the mean as it does without them."""
    lie = {
        "attack": "sign_flip",
        "clients": {"total": 9, "malicious": 2},
        "threat": {"knowledge": ["own_data", "model"]},
    }
    plain, masked = (models({"name": "d_psgd", "graph": "torus", **more}, **lie) for more in ({}, {"masks": 24}))
    clean = models({"name": "d_psgd", "graph": "torus"}, clients={"total": 9})
    assert off(masked, plain) < 0.01 < 0.2 < off(clean, plain)


def test_what_is_not_finite_costs_a_neighborhood_its_sum():
    found = list(
        reports({"name": "d_psgd", "graph": "torus", "masks": 20}, attack="nan", clients={"total": 9, "malicious": 1})
    )
    assert found[0].nodes.abandoned == 4 and bool(found[-1].model.isfinite().all())


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ({"name": "d_psgd", "masks": 20}, {"defense": "median"}, "median needs each client's update"),
    ({"name": "d_psgd", "masks": 20}, {"defense": "nna"}, "nna needs single values. Use mean, or leave out masks"),
    ({"name": "d_psgd", "graph": "star", "masks": 20}, {}, "some node hears fewer than two others"),
    ({"name": "d_psgd", "graph": "directed_ring", "masks": 20}, {}, "some node hears fewer than two others"),
    ({"name": "d_psgd", "clip": 1.0}, {}, "clip of d_psgd is what the masks' encoding cuts"),
    ({"name": "d_psgd", "masks": 20, "broadcast": True}, {}, "under masks a node sends each neighbor something else"),
    ({"name": "ako", "graph": "complete", "masks": 20}, {}, "send parts of vectors"),
    ({"name": "defacto", "phase": 3, "masks": 20}, {}, "from the sums of 3 rounds node 0 of ring can solve for the update of node 3"),
    ({"name": "d_psgd", "masks": 20}, {"attack": "dissensus", "clients": {"malicious": 1}}, "dissensus needs the honest clients' updates"),
]  # fmt: skip


@pytest.mark.parametrize(("system", "settings", "why"), REFUSED)
def test_what_is_refused(system, settings, why):
    assert why in " ".join(cell(system, **settings).verdict.reasons)


@pytest.mark.parametrize(("phase", "hides"), [(2, True), (3, False)])
def test_the_node_opposite_is_hidden_as_long_as_nothing_of_it_has_come(phase, hides):
    """On a ring of six it stands three links away, on either side."""
    assert bool(cell({"name": "defacto", "phase": phase, "masks": 20}).verdict.reasons) != hides


def test_masks_are_no_part_of_who_has_none():
    assert "masks" not in cell("d_psgd").canonical["architecture"]
    assert cell({"name": "d_psgd", "masks": 20}).canonical["architecture"]["masks"] == 20
    assert min(topology("torus", 9).sizes) == 5
