"""Collectives: every node ends with the sum, in the order of additions of the real thing, for as many bytes as the formulae say."""

from __future__ import annotations

import pytest
import torch

from fedguard.architectures.collectives import TOPOLOGIES
from fedguard.architectures.collectives.schedule import simulate_chunk

#: (topology, nodes, group).
CASES = [
    *(("ring", n, 1) for n in (1, 2, 3, 7)),
    *(("reduce_broadcast", n, 1) for n in (1, 2, 5)),
    *(("hierarchical", n, group) for n, group in ((6, 2), (6, 3), (12, 4), (4, 4), (4, 1))),
]


def rows(n, d=23):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(n))


def everywhere(schedule, vectors, **hooks):
    """float ``[n, d]``: what each node ends with."""
    n, d = vectors.shape
    out = torch.empty(n, d, dtype=vectors.dtype)
    for chunk, cut in enumerate(schedule.cuts(d)):
        out[:, cut] = torch.stack(simulate_chunk(schedule, chunk, list(vectors[:, cut]), **hooks))
    return out


@pytest.mark.parametrize(("topology", "n", "group"), CASES)
@pytest.mark.parametrize("d", [23, 24, 3])
def test_every_node_ends_with_the_same_sum(topology, n, group, d):
    vectors = rows(n, d).double()
    before = vectors.clone()
    ended = everywhere(TOPOLOGIES[topology](n, group), vectors)
    assert torch.equal(ended, ended[:1].expand(n, -1))
    assert float((ended[0] - vectors.sum(0)).abs().max()) < 1e-14 * n
    assert torch.equal(vectors, before)


def test_a_ring_adds_up_in_its_own_order():
    """Chunk c is c + (c + 1) + ... in float32, to the last bit; and another order gives other bits."""
    n, d = 7, 7000
    vectors = rows(n, d)
    schedule = TOPOLOGIES["ring"](n, 1)
    ended = everywhere(schedule, vectors)[0]
    expected, upward = torch.empty(d), vectors[0].clone()
    for chunk, cut in enumerate(schedule.cuts(d)):
        part = vectors[chunk, cut]
        for step in range(1, n):
            part = vectors[(chunk + step) % n, cut] + part
        expected[cut] = part
    for row in vectors[1:]:
        upward += row
    assert torch.equal(ended, expected)
    assert not torch.equal(ended, upward)
    assert torch.equal(everywhere(TOPOLOGIES["reduce_broadcast"](n, 1), vectors)[0], upward)


@pytest.mark.parametrize(("n", "d"), [(4, 24), (6, 24), (4, 23), (5, 3), (2, 7), (1, 9)])
def test_traffic_of_a_ring_is_its_formula(n, d):
    """2 d (n - 1)/n elements where n divides d; else each node sends all chunks twice, but for i + 1 and i + 2 once."""
    schedule = TOPOLOGIES["ring"](n, 1)
    sizes = [d // n + (chunk < d % n) for chunk in range(n)]
    assert [cut.stop - cut.start for cut in schedule.cuts(d)] == sizes
    traffic = schedule.traffic(d)
    expected = [2 * d - sizes[(i + 1) % n] - sizes[(i + 2) % n] if n > 1 else 0 for i in range(n)]
    assert list(traffic.sent) == expected
    assert list(traffic.received) == [expected[i - 1] for i in range(n)]
    if d % n == 0:
        assert set(traffic.sent) == {2 * d * (n - 1) // n}
    assert len(traffic.steps) == 2 * (n - 1)


@pytest.mark.parametrize(("n", "d"), [(2, 5), (7, 23)])
def test_traffic_of_the_others_is_theirs(n, d):
    root = TOPOLOGIES["reduce_broadcast"](n, 1).traffic(d)
    assert root.sent == root.received == ((n - 1) * d, *[d] * (n - 1))
    assert len(root.steps) == 2
    every = TOPOLOGIES["all_to_all"](n, 1).traffic(d)
    assert every.sent == every.received == ((n - 1) * d,) * n
    assert len(every.steps) == 1


@pytest.mark.parametrize(("n", "group"), [(6, 2), (6, 3), (12, 4), (12, 3), (16, 4)])
def test_a_hierarchy_sends_as_much_as_a_ring_in_fewer_steps(n, group):
    d, across = 48 * n, n // group
    traffic = TOPOLOGIES["hierarchical"](n, group).traffic(d)
    expected = 2 * d * (group - 1) // group + 2 * (d // group) * (across - 1) // across
    assert set(traffic.sent) == set(traffic.received) == {expected} == {2 * d * (n - 1) // n}
    assert len(traffic.steps) == 2 * (group - 1) + 2 * (across - 1) <= 2 * (n - 1)


def test_groups_that_do_not_come_out_even_are_refused():
    with pytest.raises(ValueError, match="7 nodes cannot be dealt into groups of 3"):
        TOPOLOGIES["hierarchical"](7, 3)


@pytest.mark.parametrize(("topology", "n", "group"), [case for case in CASES if case[1] > 2])
@pytest.mark.parametrize("node", [0, 2])
def test_who_adds_to_what_it_passes_on_adds_once_and_not_to_its_own(topology, n, group, node):
    """A node adds to each chunk at most once; in a ring to all but its own, and a leaf passes nothing on."""
    schedule, d = TOPOLOGIES[topology](n, group), 4 * n
    vectors, lie = rows(n, d).double(), torch.arange(1.0, d + 1, dtype=torch.float64)
    honest = everywhere(schedule, vectors)
    moved = torch.empty_like(honest)
    for chunk, cut in enumerate(schedule.cuts(d)):
        moved[:, cut] = torch.stack(simulate_chunk(schedule, chunk, list(vectors[:, cut]), added={node: lie[cut]}))
    assert torch.allclose(moved, moved[:1].expand(n, -1), rtol=0, atol=0)
    difference = (moved - honest)[0]
    touched = difference.abs() > 1e-9
    assert torch.allclose(difference[touched], lie[touched])
    if topology == "ring":
        assert touched.tolist() == [chunk != node for chunk in range(n) for _ in range(4)]
    if topology == "reduce_broadcast":
        assert bool(touched.all()) == (node == 0) and bool(touched.any()) == (node == 0)
    if topology == "hierarchical" and group > 1:
        assert bool(touched.any())


@pytest.mark.parametrize("fault", ["a chunk added twice", "a chunk left out", "in the wrong order"])
def test_a_fault_in_a_ring_is_seen(fault):
    """A test that cannot fail is no test."""
    from dataclasses import replace

    schedule, vectors = TOPOLOGIES["ring"](5, 1), rows(5, 2000)
    steps = list(schedule.steps)
    if fault == "a chunk added twice":
        steps.insert(1, steps[0])
    elif fault == "a chunk left out":
        steps[0] = steps[0][1:]
    else:
        steps[0], steps[1] = steps[1], steps[0]
    wrong = everywhere(replace(schedule, steps=tuple(steps)), vectors)
    assert float((wrong - vectors.sum(0)).abs().max()) > 0.1
