"""The neighbor graph: a ring by a plain loop, regular, symmetric, every ring equally likely."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare

from fedguard.errors import ConfigError
from fedguard.secagg.graph import _below, neighbors

SEED = bytes(range(32))


def seeds(count, label=b"graph"):
    return [hashlib.sha256(label + i.to_bytes(4, "big")).digest() for i in range(count)]


def plain(seed, members, degree):
    """The definition, step by step."""
    ring = sorted(members)
    stream = b"".join(
        hashlib.shake_256(b"FedGuard/secagg/v1/ring" + seed + block.to_bytes(8, "little")).digest(4096)
        for block in range(9)
    )
    at = 0
    for i in range(len(ring) - 1, 0, -1):
        while True:
            word = int.from_bytes(stream[at : at + 8], "little")
            at += 8
            if word < 2**64 - 2**64 % (i + 1):
                break
        j = word % (i + 1)
        ring[i], ring[j] = ring[j], ring[i]
    graph = {}
    for place, member in enumerate(ring):
        steps = range(1, degree // 2 + 1)
        near = {ring[(place + sign * step) % len(ring)] for step in steps for sign in (-1, 1)}
        graph[member] = tuple(sorted(near))
    return graph


@given(
    seed=st.binary(min_size=32, max_size=32),
    members=st.sets(st.integers(0, 2**32 - 1), min_size=4, max_size=40),
    data=st.data(),
)
def test_graph_is_the_definition_symmetric_and_regular(seed, members, data):
    degree = data.draw(st.integers(1, (len(members) - 2) // 2)) * 2
    graph = neighbors(seed, data.draw(st.permutations(sorted(members))), degree)
    assert dict(graph) == plain(seed, members, degree)
    assert list(graph) == sorted(members)
    for u, near in graph.items():
        assert len(set(near)) == len(near) == degree
        assert u not in near
        assert list(near) == sorted(near)
        assert all(u in graph[v] for v in near)


def test_large_graph_draws_more_than_one_block():
    assert dict(neighbors(SEED, range(2000), 48)) == plain(SEED, range(2000), 48)


def test_frozen_example():
    assert dict(neighbors(SEED, range(8), 4)) == {
        0: (1, 4, 5, 6),
        1: (0, 2, 3, 4),
        2: (1, 3, 6, 7),
        3: (1, 2, 4, 7),
        4: (0, 1, 3, 5),
        5: (0, 4, 6, 7),
        6: (0, 2, 5, 7),
        7: (2, 3, 5, 6),
    }


@given(members=st.sets(st.integers(0, 99), max_size=12), beyond=st.integers(0, 3))
def test_complete_graph_from_n_minus_1_on(members, beyond):
    graph = neighbors(SEED, list(members), max(len(members) - 1, 0) + beyond)
    assert dict(graph) == {u: tuple(sorted(members - {u})) for u in members}


def test_every_ring_is_equally_likely():
    """Five members have 4! / 2 = 12 rings."""
    rings = Counter(tuple(sorted(neighbors(seed, range(5), 2).items())) for seed in seeds(6000))
    assert len(rings) == 12
    assert chisquare(list(rings.values())).pvalue > 1e-4


def test_every_pair_is_adjacent_equally_often():
    """The neighbors of u are k of the n - 1 others, none twice; so sum_v (O - E)^2 / (N p (1 - p)) (n - 2) / (n - 1) ~ chi2."""
    n, degree, draws = 14, 4, 1500
    graphs = [neighbors(seed, range(n), degree) for seed in seeds(draws)]
    share = degree / (n - 1)
    for u in range(n):
        met = Counter(v for graph in graphs for v in graph[u])
        spread = sum((met[v] - draws * share) ** 2 for v in range(n) if v != u) / (draws * share * (1 - share))
        assert chi2.sf(spread * (n - 2) / (n - 1), n - 2) > 1e-4


def test_words_in_the_incomplete_last_turn_are_drawn_again():
    # 2^64 = 1 mod 3, so that the last word would be one zero too many
    assert _below(3, iter([2**64 - 1, 5])) == 2
    assert _below(3, iter([2**64 - 2])) == (2**64 - 2) % 3
    assert _below(4, iter([2**64 - 1])) == 3


def test_graph_depends_on_seed_and_members_and_not_on_their_order():
    graph = neighbors(SEED, range(30), 6)
    flipped = bytes([SEED[0] ^ 1]) + SEED[1:]
    assert neighbors(flipped, range(30), 6) != graph
    assert neighbors(SEED[:-1] + b"\0", range(30), 6) != graph
    assert neighbors(SEED, range(29), 6) != {u: near for u, near in graph.items() if u < 29}
    assert neighbors(SEED, list(reversed(range(30))), 6) == graph
    assert neighbors(bytearray(SEED), range(30), 6) == graph


def test_ring_connects_all():
    graph = neighbors(SEED, range(50), 2)
    seen, edge = {0}, [0]
    while edge:
        edge = [v for u in edge for v in graph[u] if v not in seen]
        seen.update(edge)
    assert seen == set(range(50))


def test_graph_that_is_shared_cannot_be_altered():
    with pytest.raises(TypeError):
        neighbors(SEED, range(6), 2)[0] = ()


@pytest.mark.parametrize(
    ("seed", "members", "degree", "message"),
    [
        (SEED[:31], range(5), 2, "32 bytes"),
        (SEED, [1, 2, 3, 3], 2, "distinct"),
        (SEED, [1, 1], 5, "distinct"),
        (SEED, range(6), 3, "even degree"),
        (SEED, range(6), 0, "even degree"),
        (SEED, range(6), -2, "even degree"),
    ],
)
def test_bad_graphs_are_refused(seed, members, degree, message):
    with pytest.raises(ConfigError, match=message):
        neighbors(seed, members, degree)
