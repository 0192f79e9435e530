"""Degree, threshold and quorum: published points, probabilities counted anew, rings cut by brute force."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fedguard.errors import ConfigError
from fedguard.secagg.graph import neighbors
from fedguard.secagg.parameters import Parameters, choose, complete, disconnection_probability, sparse, tails


def drawn_one_by_one(n, marked, draws):
    """P[i marked] for i = 0 ... draws, drawing without putting back; sums of positive floats keep small tails exact."""
    chance = [1.0] + [0.0] * draws
    for j in range(draws):
        after = [0.0] * (draws + 1)
        for i, p in enumerate(chance[: j + 1]):
            if p:
                after[i] += p * max(n - marked - (j - i), 0) / (n - j)
                after[min(i + 1, draws)] += p * max(marked - i, 0) / (n - j)
        chance = after
    return chance


def components(graph, left):
    """The parts into which the members that are left fall."""
    todo, parts = set(left), []
    while todo:
        part = [todo.pop()]
        for u in part:
            near = [v for v in graph[u] if v in todo]
            todo.difference_update(near)
            part += near
        parts.append(part)
    return parts


def wide_gaps(n, removed, half):
    """P[two or more gaps of at least `half`], gap by gap: a table over (removed so far, wide gaps so far)."""
    left = n - removed
    ways = {(0, 0): 1}
    for _ in range(left):
        after = {}
        for (used, wide), count in ways.items():
            for gap in range(removed - used + 1):
                key = (used + gap, min(wide + (gap >= half), 2))
                after[key] = after.get(key, 0) + count
        ways = after
    total = sum(count for (used, _), count in ways.items() if used == removed)
    return Fraction(ways.get((removed, 2), 0), total)


@pytest.mark.parametrize(("n", "degree", "threshold"), [(100, 22, 11), (500, 42, 24), (1000, 48, 27)])
def test_reference_points(n, degree, threshold):
    ring = sparse(n, 0.1, 0.1)
    assert (ring.degree, ring.threshold) == (degree, threshold)
    assert (ring.clients, ring.corrupted, ring.dropped, ring.quorum) == (n, n // 10, n // 10, (n + n // 10) // 2 + 1)


def test_complete_graph_up_to_a_hundred_clients():
    assert choose(100, 0.1, 0.1) == complete(100, 0.1, 0.1)
    assert choose(101, 0.1, 0.1) == sparse(101, 0.1, 0.1, grinding=40)
    assert choose(60, 0.1, 0.1, complete_up_to=50, grinding=0) == sparse(60, 0.1, 0.1)


@pytest.mark.parametrize(
    ("n", "marked", "draws"), [(12, 4, 5), (30, 0, 4), (30, 30, 4), (10, 7, 8), (1000, 100, 48), (500, 50, 42)]
)
def test_tails_are_those_of_drawing_one_by_one(n, marked, draws):
    numerators, denominator = tails(n, marked, draws)
    chance = drawn_one_by_one(n, marked, draws)
    for i in range(draws + 2):
        assert float(Fraction(numerators[i], denominator)) == pytest.approx(math.fsum(chance[i:]), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("n", "degree"), [(9, 2), (10, 4), (11, 6), (12, 4), (12, 8)])
def test_disconnection_by_enumerating_all_who_may_be_gone(n, degree):
    graph = neighbors(bytes(32), range(n), degree)
    for removed in range(n + 1):
        cases = list(combinations(range(n), removed))
        cut = sum(len(components(graph, set(range(n)) - set(gone))) > 1 for gone in cases)
        assert disconnection_probability(n, removed, degree) == Fraction(cut, len(cases)), removed


@pytest.mark.parametrize(("n", "removed", "degree"), [(40, 13, 6), (60, 30, 10), (90, 30, 12)])
def test_disconnection_by_counting_gap_by_gap(n, removed, degree):
    assert disconnection_probability(n, removed, degree) == wide_gaps(n, removed, degree // 2)


def test_disconnection_of_rings_drawn_at_random():
    n, removed, degree, draws = 40, 9, 4, 1500
    cut = 0
    for i in range(draws):
        graph = neighbors(hashlib.sha256(b"cut%d" % i).digest(), range(n), degree)
        cut += len(components(graph, range(removed, n))) > 1
    expected = float(disconnection_probability(n, removed, degree))
    assert 0.2 < expected < 0.8
    assert binomtest(cut, draws, expected).pvalue > 1e-4


@pytest.mark.parametrize("attested", [True, False])
@pytest.mark.parametrize(
    ("n", "gamma", "delta"),
    [(101, 0.1, 0.1), (150, 0.05, 0.3), (200, 0.2, 0.15), (300, 0.0, 0.1), (150, 0.1, 0.0), (101, 0.0, 0.0)],
)
def test_the_degree_is_the_smallest_that_keeps_all_bounds(n, gamma, delta, attested):
    chosen = sparse(n, gamma, delta, attested=attested)
    corrupted, dropped = math.floor(gamma * n), math.floor(delta * n)

    def kept(degree):
        """t1 and t if the bounds hold at this degree, counted without the module."""
        colluders, living = drawn_one_by_one(n, corrupted, degree), drawn_one_by_one(n, n - dropped, degree)
        t1 = next(i for i in range(degree + 1) if math.fsum(colluders[i + 1 :]) <= 2.0**-41 / n)
        t = max(t1 + 1, 2)
        while not attested and 2 * t <= degree + t1:
            t += 1
        cut = wide_gaps(n, corrupted + dropped, degree // 2) if degree == chosen.degree else 0
        if t <= degree and math.fsum(living[:t]) <= 2.0**-20 / n and cut < 2.0**-41:
            return t1, t
        return None

    assert kept(chosen.degree) == (chosen.corrupted_neighbors, chosen.threshold)
    assert chosen.disconnection < -41
    for degree in range(2, chosen.degree, 2):
        assert kept(degree) is None or disconnection_probability(n, corrupted + dropped, degree) >= Fraction(1, 2**41)


@pytest.mark.parametrize("attested", [True, False])
def test_probabilities_reached(attested):
    ring = sparse(400, 0.1, 0.1, attested=attested)
    colluders, living = drawn_one_by_one(400, 40, ring.degree), drawn_one_by_one(400, 360, ring.degree)
    exposed, stopped = math.fsum(colluders[ring.corrupted_neighbors + 1 :]), math.fsum(living[: ring.threshold])
    assert ring.exposure == pytest.approx(math.log2(400 * exposed))
    assert ring.failure == pytest.approx(math.log2(400 * stopped))
    assert ring.disconnection == pytest.approx(math.log2(disconnection_probability(400, 80, ring.degree)))
    assert max(ring.exposure, ring.disconnection) <= -41
    assert ring.failure <= -20


def test_exposure_when_the_server_leaves_honest_clients_out():
    ring = sparse(1000, 0.1, 0.1)
    assert ring.exposure_among(1000) == ring.exposure
    among = [ring.exposure_among(members) for members in (1000, 900, 700, ring.survivors)]
    assert among == sorted(among)
    colluders = drawn_one_by_one(ring.survivors, 100, ring.degree)
    expected = math.log2(ring.survivors * math.fsum(colluders[ring.corrupted_neighbors + 1 :]))
    assert among[-1] == pytest.approx(expected)
    assert ring.exposure_among(110) == 0  # no probability is above 1
    assert complete(50, 0.1, 0.1).exposure_among(20) == -math.inf
    # with no more members than degree + 1 the graph is complete, and every honest client sees all colluders
    few = Parameters(clients=200, corrupted=9, dropped=0, degree=40, corrupted_neighbors=8, threshold=9, quorum=105)
    assert few.exposure_among(20) == 0


def test_the_union_bound_over_a_random_client_covers_the_honest_ones():
    """n P[Hyp(n, A, k) > t1] is at least (n - A) P[Hyp(n - 1, A, k) > t1], what the honest ones alone have around them."""
    n, corrupted, degree = 60, 12, 10
    everyone, of_all = tails(n, corrupted, degree)
    others, of_others = tails(n - 1, corrupted, degree)
    for i in range(1, degree + 1):
        assert Fraction(n * everyone[i], of_all) >= Fraction((n - corrupted) * others[i], of_others)


def test_demands_raise_the_degree():
    base = sparse(500, 0.1, 0.1)
    assert sparse(500, 0.1, 0.1, grinding=0) == base
    assert sparse(500, 0.1, 0.1, grinding=20) == sparse(500, 0.1, 0.1, security=61)
    for knob in ({"grinding": 20}, {"failure": 40}, {"attested": False}):
        assert sparse(500, 0.1, 0.1, **knob).degree > base.degree, knob
    assert max(sparse(500, 0.1, 0.1, grinding=40).exposure, sparse(500, 0.1, 0.1, grinding=40).disconnection) <= -81
    by_gamma = [sparse(500, gamma, 0.1).degree for gamma in (0.0, 0.05, 0.1, 0.2, 0.3)]
    by_delta = [sparse(500, 0.1, delta).degree for delta in (0.0, 0.1, 0.2, 0.3, 0.4)]
    assert by_gamma == sorted(set(by_gamma))
    assert by_delta == sorted(by_delta)
    by_n = [sparse(n, 0.1, 0.1).degree for n in (200, 500, 1000, 2000)]
    assert by_n == sorted(by_n)


def test_where_no_ring_holds_the_graph_is_complete():
    assert sparse(20, 0.3, 0.3, attested=False) == complete(20, 0.3, 0.3, attested=False)


@given(n=st.integers(3, 200), gamma=st.floats(0, 0.99), attested=st.booleans())
@settings(max_examples=300)
def test_complete_graph_keeps_its_promises(n, gamma, attested):
    corrupted = math.floor(gamma * n + 1e-9)
    if corrupted > n - 2:
        with pytest.raises(ConfigError, match="two clients must be honest"):
            complete(n, gamma, 0)
        return
    chosen = complete(n, gamma, 0, attested=attested)
    assert (chosen.corrupted, chosen.degree, chosen.corrupted_neighbors) == (corrupted, n - 1, corrupted)
    assert chosen.threshold > corrupted
    assert 2 <= chosen.threshold <= chosen.degree
    assert chosen.survivors <= n
    assert chosen.survivors - 1 >= chosen.threshold, "each survivor has t others alive"
    assert (chosen.exposure, chosen.disconnection, chosen.failure) == (-math.inf,) * 3
    if attested:
        assert 2 * chosen.quorum - n > corrupted, "two quorums share an honest client"
        assert 2 * (chosen.quorum - 1) - n <= corrupted, "and no smaller quorum does"
        assert chosen.threshold == chosen.quorum - 1 or (chosen.quorum, chosen.threshold) == (2, 2)
        assert chosen.survivors == chosen.quorum or n == 3
        assert chosen.anonymity == chosen.survivors - corrupted
    else:
        assert chosen.quorum == 0
        assert 2 * chosen.threshold > chosen.degree + corrupted >= 2 * (chosen.threshold - 1)


@pytest.mark.parametrize(
    ("n", "gamma", "threshold", "quorum", "survivors"),
    [
        (3, 0, 2, 2, 3),
        (4, 0, 2, 3, 3),
        (5, 0, 2, 3, 3),
        (3, 0.34, 2, 3, 3),
        (4, 0.25, 2, 3, 3),
        (10, 0.1, 5, 6, 6),
        (50, 0.1, 27, 28, 28),
    ],
)
def test_few_clients(n, gamma, threshold, quorum, survivors):
    chosen = choose(n, gamma, 0)
    assert (chosen.threshold, chosen.quorum, chosen.survivors) == (threshold, quorum, survivors)


@pytest.mark.parametrize("attested", [True, False])
@pytest.mark.parametrize(("n", "gamma"), [(3, 0), (10, 0.2), (100, 0.1), (200, 0.1)])
def test_the_largest_share_of_dropouts(n, gamma, attested):
    most = n - choose(n, gamma, 0, attested=attested, complete_up_to=n).survivors
    assert choose(n, gamma, most / n, attested=attested, complete_up_to=n).dropped == most
    with pytest.raises(ConfigError, match=f"at most {most / n:.6g}, or a lower gamma"):
        choose(n, gamma, (most + 1) / n, attested=attested)


def test_shares_are_read_as_they_are_written():
    assert 0.29 * 100 < 29
    assert complete(100, 0.29, 0.29).corrupted == complete(100, 0.29, 0.29).dropped == 29
    assert complete(3, 1 / 3, 0).corrupted == 1
    assert complete(10, 0.19, 0.19).corrupted == 1


def test_anonymity_holds_whichever_clients_the_server_declares_dropped():
    """All dropouts that a server can think of, on a ring with two colluders: no opened client is in a smaller sum."""
    n, colluders, graph = 11, {0, 5}, neighbors(bytes(32), range(11), 4)
    t1 = max(len(colluders.intersection(graph[u])) for u in range(n) if u not in colluders)
    chosen = Parameters(clients=n, corrupted=2, dropped=0, degree=4, corrupted_neighbors=t1, threshold=t1 + 1, quorum=7)
    honest = set(range(n)) - colluders
    sums = []
    for size in range(len(honest) + 1):
        for alive in map(set, combinations(sorted(honest), size)):
            seen = alive | colluders
            opened = {u for u in alive if len(seen.intersection(graph[u])) >= chosen.threshold}
            sums += [len(part) for part in components(graph, alive) if opened.intersection(part)]
    assert min(sums) == chosen.anonymity == 2


def test_split_views_cannot_open_both_secrets_of_a_client():
    """Each honest neighbor answers once, each colluder twice: t of both kinds are not to be had."""
    for n in (3, 4, 10, 51):
        for gamma in (0, 0.1, 0.3):
            chosen = complete(n, gamma, 0, attested=False)
            answers = (chosen.degree - chosen.corrupted) + 2 * chosen.corrupted
            assert answers < 2 * chosen.threshold


def test_description_has_every_number_and_says_what_is_trusted():
    ring = sparse(1000, 0.1, 0.1)
    rows = {name: (value, meaning) for name, value, meaning in ring.describe()}
    for name in (
        "clients",
        "corrupted",
        "dropped",
        "degree",
        "threshold",
        "quorum",
        "members",
        "survivors",
        "anonymity",
    ):
        assert rows[name][0] == str(getattr(ring, name))
    assert [rows[name][0] for name in ("exposure", "disconnection", "failure")] == ["2^-42.8", "2^-100.3", "2^-24.8"]
    assert rows["exposure, fewest members"][0] == f"2^{ring.exposure_among(900):.1f}"
    assert "semi-honest" not in rows["quorum"][1]
    rows = {name: (value, meaning) for name, value, meaning in complete(50, 0.1, 0.1, attested=False).describe()}
    assert "semi-honest" in rows["quorum"][1]
    assert rows["exposure"][0] == "impossible"
    assert "all others" in rows["degree"][1]


@pytest.mark.parametrize(
    ("arguments", "knobs", "message"),
    [
        ((2, 0, 0), {}, "at least 3 clients"),
        ((0, 0, 0), {}, "at least 3 clients"),
        ((10, -0.1, 0), {}, "gamma"),
        ((10, 1.0, 0), {}, "gamma"),
        ((10, math.nan, 0), {}, "gamma"),
        ((10, 0.1, 1.0), {}, "dropout"),
        ((10, 0.1, -0.1), {}, "dropout"),
        ((10, 0.9, 0), {}, "two clients must be honest"),
        ((1000, 0.1, 0.5), {}, "at most 0.449, or a lower gamma"),
        ((1000, 0.1, 0.1), {"security": -1}, "negative"),
        ((1000, 0.1, 0.1), {"failure": -1}, "negative"),
        ((1000, 0.1, 0.1), {"grinding": -1}, "negative"),
    ],
)
def test_errors(arguments, knobs, message):
    with pytest.raises(ConfigError, match=message):
        choose(*arguments, **knobs)


def test_fewest_members_on_a_ring_are_all_but_the_dropouts():
    """So a server that leaves out honest clients gains little: 2^-22 with a bare quorum, 2^-39 with this demand."""
    ring, whole = sparse(1000, 0.1, 0.1), choose(50, 0.1, 0.1)
    assert choose(1000, 0.1, 0.1).exposure < -81
    assert ring.members == 900 and whole.members == whole.survivors
    assert ring.exposure_among(ring.survivors) > -23 and ring.exposure_among(ring.members) < -38
