"""What a neighbor in a ring makes of the part that it reads: of a gradient of one example, the example; under masks, nothing."""

from __future__ import annotations

import pytest
import torch

from fedguard.architectures.collectives import TOPOLOGIES
from fedguard.architectures.collectives.leaks import trace_messages
from fedguard.architectures.collectives.schedule import simulate_chunk
from fedguard.architectures.systems import sums
from tests.systems.scenes import reports, scene

#: Eight nodes that make one step on one digit each: 64 inputs, ten classes, so that a chunk holds some 81 of 650 coordinates.
ONE = {"clients": {"total": 8}, "training": {"rounds": 1, "local_steps": 1, "batch_size": 1}}
PIXELS = 64


def restored(chunk, first):
    """float ``[64]``: the input up to a factor, from coordinates ``first`` and on of the weights.

    Row c of the gradient is $(p_c - y_c) x$. A chunk longer than a row holds parts of two or three, and what they have in common
    tells the factor between them.
    """
    rows: dict[int, dict[int, float]] = {}
    for place, value in enumerate(chunk.tolist(), start=first):
        if place < 10 * PIXELS:
            rows.setdefault(place // PIXELS, {})[place % PIXELS] = value
    whole: dict[int, float] = {}
    for row in sorted(rows.values(), key=len, reverse=True):
        both = row.keys() & whole.keys()
        top, bottom = sum(row[k] * whole[k] for k in both), sum(row[k] ** 2 for k in both)
        factor = (top / bottom if bottom else 0.0) if whole else 1.0
        whole = {k: factor * value for k, value in row.items()} | whole
    return torch.tensor([whole.get(k, 0.0) for k in range(PIXELS)])


def likeness(system, monkeypatch):
    """For each node whose first chunk lies in the weights: the largest cosine between what its neighbor makes of the chunk that
    comes to it, and an example of this node; and of the examples of all other nodes."""
    wires = []
    received = sums.SumRun.receive_updates

    def kept_back(self, sent):
        wires.append((sent.senders, sent.updates.clone()))
        return received(self, sent)

    monkeypatch.setattr(sums.SumRun, "receive_updates", kept_back)
    list(reports(system, **ONE))
    (clients, updates), setup = wires[0], scene(system, **ONE)[1]
    ring, found = TOPOLOGIES["ring"](8, 1), []
    for node, cut in enumerate(ring.cuts(650)):
        said = []
        vectors = list(updates[[clients.index(one) for one in range(8)], cut])
        simulate_chunk(ring, node, vectors, on_message=lambda message, value, said=said: said.append((message, value)))
        message, chunk = said[0]
        assert (message.source, message.to) == (node, (node + 1) % 8) and cut.stop <= 10 * PIXELS + 10
        if cut.start > 9 * PIXELS:
            continue
        image = restored(chunk, cut.start)
        cosines = [
            torch.cosine_similarity(setup.task.examples(one).x.flatten(1), image[None]).abs().max() for one in range(8)
        ]
        found.append((float(cosines.pop(node)), float(max(cosines))))
    return found


def test_an_eighth_of_a_gradient_is_the_image(monkeypatch):
    found = likeness("all_reduce", monkeypatch)
    assert len(found) == 8
    assert all(other < 0.98 < 0.9999 < own for own, other in found)


@pytest.mark.parametrize("masked", [False, True])
def test_the_chunk_that_comes_first_is_raw_but_for_masks(masked):
    (_, row), *_ = trace_messages(TOPOLOGIES["ring"](8, 1), 3, masked)
    assert row[:8].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert bool(row[8:].any()) == masked and (not masked or abs(row[8:]).sum() == 7)
