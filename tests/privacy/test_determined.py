"""What messages determine: exact algebra against ranks, anchors of rings and gossip, and numbers really solved for."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch

from fedguard.architectures.collectives import TOPOLOGIES
from fedguard.architectures.collectives.butterfly import butterfly
from fedguard.architectures.collectives.leaks import read_by, trace_messages
from fedguard.architectures.collectives.schedule import simulate_chunk
from fedguard.privacy.determined import find_exposed_vectors
from tests.privacy.gossip_messages import trace_gossip


def by_ranks(messages, known):
    """The definition, in float64: the unit vector adds nothing to the rank."""
    rows = np.array(messages, float).reshape(len(messages), -1)
    rows[:, sorted(known)] = 0
    found = set()
    for i in set(range(rows.shape[1])) - set(known):
        unit = np.eye(rows.shape[1])[i]
        if np.linalg.matrix_rank(np.vstack([rows, unit])) == np.linalg.matrix_rank(rows):
            found.add(i)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_ranks_say(seed):
    rng = np.random.default_rng(seed)
    k, n = rng.integers(1, 8, 2)
    messages = rng.integers(-2, 3, (k, n)).tolist()
    known = set(np.flatnonzero(rng.random(n) < 0.2).tolist())
    assert find_exposed_vectors(messages, known) == by_ranks(messages, known)


def test_small_cases_by_hand():
    assert find_exposed_vectors([[1, 1], [1, -1]]) == {0, 1}
    assert find_exposed_vectors([[1, 1, 0], [0, 1, 1]]) == frozenset()
    assert find_exposed_vectors([[1, 1, 0], [0, 1, 1]], {0}) == {1, 2}
    assert (
        find_exposed_vectors([[2, 2], [3, 3]])
        == find_exposed_vectors([[0, 0]])
        == find_exposed_vectors([])
        == frozenset()
    )
    third = Fraction(1, 3)
    assert find_exposed_vectors([[third, third, third], [1, 1, 0]]) == {2}


def test_nothing_is_rounded():
    """Rows that differ by 2^-80, which no float64 sees: they are two, and two unknowns are determined."""
    tiny = Fraction(1, 2**80)
    rows = [[1, 1], [1, 1 + tiny]]
    assert find_exposed_vectors(rows) == {0, 1} and by_ranks(rows, ()) == set()


# Rings.


@pytest.mark.parametrize("n", [4, 5, 8])
def test_a_node_of_a_ring_reads_an_nth_of_the_two_beside_it(n):
    """The first chunk that comes to it is raw; and one sum lacks nothing but its own part and that of the node after it."""
    ring = TOPOLOGIES["ring"](n, 1)
    for node in range(n):
        assert read_by(ring, {node}) == {one: Fraction(1, n) for one in sorted([(node - 1) % n, (node + 1) % n])}


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_whoever_pools_what_they_hear_reads_what_lies_between_two_of_them(n):
    """Each set of readers: all of a node whose two neighbors are readers, an n-th of one with one, nothing of others."""
    ring = TOPOLOGIES["ring"](n, 1)
    for k in range(1, n):
        for readers in map(set, combinations(range(n), k)):
            others = set(range(n)) - readers
            beside = {node: ((node - 1) % n in readers) + ((node + 1) % n in readers) for node in others}
            expected = {node: Fraction(1) if count == 2 else Fraction(1, n) for node, count in beside.items() if count}
            assert read_by(ring, readers) == expected, readers


@pytest.mark.parametrize("n", [3, 4, 5, 6])
@pytest.mark.parametrize("topology", ["ring", "reduce_broadcast"])
def test_masks_in_pairs_close_it_but_for_all_others_together(topology, n):
    """Whatever some nodes pool, they have the sum of the others; and where there is one other, that is its vector."""
    schedule = TOPOLOGIES[topology](n, 1)
    for k in range(1, n):
        for readers in map(set, combinations(range(n), k)):
            others = dict.fromkeys(set(range(n)) - readers, 1)
            assert read_by(schedule, readers, masked=True) == (others if k == n - 1 else {}), readers


def test_masks_of_all_are_needed():
    """With the masks of one pair left out, as a fault would, the two around a node read a part of it again."""
    ring = TOPOLOGIES["ring"](4, 1)
    readers, found = {0, 2}, set()
    for chunk in range(4):
        rows = [row.tolist() for message, row in trace_messages(ring, chunk, masked=True) if message.to in readers]
        own = {*readers, *range(4, 10)}  # all masks are known, as where keys are not secret
        found |= find_exposed_vectors(rows, own) & {1, 3}
    assert found == {1, 3}


def test_who_adds_up_reads_all_and_to_all_everybody_does():
    every = {1: 1, 2: 1, 3: 1, 4: 1}
    assert read_by(TOPOLOGIES["reduce_broadcast"](5, 1), {0}) == every
    assert read_by(TOPOLOGIES["reduce_broadcast"](5, 1), {1}) == {}
    assert read_by(TOPOLOGIES["all_to_all"](5, 1), {0}) == every
    assert read_by(butterfly(5), {0}) == dict.fromkeys(every, Fraction(1, 5))


def test_in_a_hierarchy_a_node_reads_of_its_own_group_alone():
    hierarchy = TOPOLOGIES["hierarchical"](12, 4)
    assert read_by(hierarchy, {1}) == {0: Fraction(1, 4)}
    assert read_by(hierarchy, {0, 2}) == {1: Fraction(3, 4), 3: Fraction(3, 4)}


@pytest.mark.parametrize("readers", [{1}, {0, 2}])
def test_what_is_determined_can_be_solved_for_and_nothing_else(readers):
    """On numbers: least squares from what the readers heard, beside what they have, gives the vector to 1e-12 or not at all."""
    n, d = 6, 60
    ring, vectors = TOPOLOGIES["ring"](n, 1), torch.randn(n, d, generator=torch.Generator().manual_seed(3)).double()
    solved = dict.fromkeys(range(n), 0)
    for chunk, cut in enumerate(ring.cuts(d)):
        said = []
        simulate_chunk(
            ring, chunk, list(vectors[:, cut]), on_message=lambda message, value, said=said: said.append(value)
        )
        made_of = list(trace_messages(ring, chunk))
        rows = np.array([row for message, row in made_of if message.to in readers], float)
        values = np.array(
            [value.numpy() for (message, _), value in zip(made_of, said, strict=True) if message.to in readers]
        )
        own = np.array(sorted(readers))
        values = values - rows[:, own] @ vectors[own, cut].numpy()
        rows[:, own] = 0
        answer = np.linalg.lstsq(rows, values, rcond=None)[0]
        for node in set(range(n)) - readers:
            solved[node] += bool(np.abs(answer[node] - vectors[node, cut].numpy()).max() < 1e-12)
    assert {node: Fraction(count, n) for node, count in solved.items() if count} == read_by(ring, readers)


# Gossip.


def ring_of(n):
    """Each node takes a third of its own and of each neighbor's."""
    third = Fraction(1, 3)
    return [[third if (i - j) % n in (0, 1, n - 1) else 0 for j in range(n)] for i in range(n)]


@pytest.mark.parametrize(("rounds", "nodes"), [(1, 3), (2, 5), (4, 9), (8, 16)])
def test_a_node_of_a_gossip_ring_solves_for_the_first_values_of_ever_more(rounds, nodes):
    """Its own among them: 2 t + 1 after t rounds, until it has all sixteen."""
    found = find_exposed_vectors(trace_gossip(ring_of(16), {0}, rounds), {0})
    assert len(found | {0}) == nodes == min(2 * rounds + 1, 16)
    assert found == {j for j in range(1, 16) if min(j, 16 - j) <= rounds}


@pytest.mark.parametrize("n", [15, 16])
def test_where_masks_leave_it_the_sum_of_its_neighbors_it_solves_for_none_or_for_the_one_opposite(n):
    """Who hears the sum of the two values alone knows the two halves of the ring together; opposite stands one that is both."""
    for rounds in (1, 2, 4, 7, 8, 20):
        heard = trace_gossip(ring_of(n), {0}, rounds)
        sums = [
            [a + b for a, b in zip(left, right, strict=True)]
            for left, right in zip(heard[::2], heard[1::2], strict=True)
        ]
        assert find_exposed_vectors(sums, {0}) == ({8} if n == 16 and rounds >= 8 else frozenset())


@pytest.mark.parametrize("rounds", [1, 2, 4, 8])
def test_where_each_round_brings_new_updates_only_the_first_of_its_neighbors_are_determined(rounds):
    heard = trace_gossip(ring_of(16), {0}, rounds, fresh=True)
    assert find_exposed_vectors(heard, {16 * round for round in range(rounds)}) == {1, 15}


def test_what_is_heard_is_what_mixing_gives():
    """On numbers, in a plain loop: values that mix, and updates that are added in each round."""
    n, rounds, rng = 5, 3, np.random.default_rng(0)
    mixing = [[Fraction(int(a), 12) for a in row] for row in rng.integers(0, 4, (n, n))]
    weights = np.array(mixing, float)
    updates = rng.normal(size=(rounds, n))
    for fresh in (False, True):
        x, expected = np.zeros(n), []
        for round in range(rounds):
            x = x + (updates[round] if fresh or round == 0 else 0)
            expected += [x[j] for i in (1, 3) for j in range(n) if j != i and mixing[i][j]]
            x = weights @ x
        rows = np.array(trace_gossip(mixing, [1, 3], rounds, fresh=fresh), float)
        assert np.allclose(rows @ (updates.ravel() if fresh else updates[0]), expected, atol=1e-12)


@pytest.mark.parametrize("fault", ["a pivot that shares its row", "own vectors are unknown", "no row is reduced"])
def test_a_fault_is_seen(fault):
    """What would be counted with one thing wrong differs from the anchors."""
    from fedguard.privacy import determined as module

    rows = trace_gossip(ring_of(16), {0}, 2)
    if fault == "a pivot that shares its row":
        found = {
            pivot
            for pivot, _ in module._reduce_rows(
                [[Fraction(0 if i == 0 else a) for i, a in enumerate(row)] for row in rows[2:]]
            )
        }
        assert found != find_exposed_vectors(rows[2:], {0})
    elif fault == "own vectors are unknown":
        assert find_exposed_vectors(rows) == {1, 15} != find_exposed_vectors(rows, {0})
    else:
        alone = {i for row in rows for i, a in enumerate(row) if a and sum(b != 0 for b in row) == 1}
        assert alone == {1, 15} != find_exposed_vectors(rows, {0})
