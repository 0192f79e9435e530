"""What nodes of a graph solve for: the algorithm on symbols against exact algebra, anchors of rings, and real trainings."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations as subsets
from typing import Any

import numpy as np
import pytest
import torch

from fedguard.architectures.gossip.listening import GossipListeners
from fedguard.contracts import Observer
from fedguard.privacy.determined import combinations, find_exposed_vectors
from fedguard.rng import Rng
from fedguard.simulated.topology import Topology, lookouts, metropolis, topology
from tests.privacy.gossip_messages import trace_gossip
from tests.systems.scenes import cell, scene


def symbols(system: Any, nodes: int, rounds: int, linear: bool = True):
    made = cell(system, clients={"total": nodes}).architecture
    return made.on_symbols(made.topology(nodes), rounds, linear)


def read(system: Any, nodes: int, seat: tuple[int, ...], rounds: int, summed: bool = False):
    """By round, whose update is solved for."""
    found = GossipListeners(seat, symbols(system, nodes, rounds), summed)
    return [set(found.reads(round)) for round in range(1, rounds + 1)]


def exact(graph: str, nodes: int) -> list[list[Fraction]]:
    return [[Fraction(a).limit_denominator(1000) for a in row] for row in topology(graph, nodes).at(0)]


@pytest.mark.parametrize("seed", range(30))
def test_combinations_are_what_the_exact_algebra_determines(seed):
    rng = np.random.default_rng(seed)
    m, n = rng.integers(1, 8, 2)
    rows, known = rng.integers(-2, 3, (m, n)), set(np.flatnonzero(rng.random(n) < 0.2).tolist())
    free = [i for i in range(n) if i not in known]
    made, there = combinations(rows.astype(float), np.eye(n)[free], known)
    assert {i for i, found in zip(free, there, strict=True) if found} == find_exposed_vectors(rows.tolist(), known)
    for i, row, found in zip(free, made, there, strict=True):
        assert not found or np.allclose((row @ rows)[free], np.eye(n)[i][free], atol=1e-9)


@pytest.mark.parametrize(("graph", "nodes"), [("ring", 5), ("star", 5), ("torus", 6), ("complete", 4)])
def test_symbols_are_what_the_formula_mixes(graph, nodes):
    """The rows of D-PSGD beside those of a plain loop in fractions, and whose updates they determine, for one and two nodes."""
    rounds, mixing = 3, exact(graph, nodes)
    of_all = symbols({"name": "d_psgd", "graph": graph}, nodes, rounds)
    for seat in [*subsets(range(nodes), 1), *subsets(range(nodes), 2)]:
        rows = trace_gossip(mixing, seat, rounds, fresh=True)
        listeners = GossipListeners(seat, of_all, summed=False)
        assert np.allclose(listeners._rows[:, 1:], np.array(rows, float), atol=1e-12)
        assert np.allclose(listeners._rows[:, 0], 1)
        own = {nodes * round + one for round in range(rounds) for one in seat}
        found = find_exposed_vectors(rows, own)
        for round in range(1, rounds + 1):
            assert set(listeners.reads(round)) == {i % nodes for i in found if i // nodes == round - 1}, (seat, round)


@pytest.mark.parametrize(("exchanges", "clear", "masked"), [(1, 3, 1), (2, 5, 1), (4, 9, 1), (8, 16, 2)])
def test_the_leak_on_a_ring_of_sixteen(exchanges, clear, masked):
    """After so many exchanges of one value: its own and those it solves for. Sums leave the node opposite, after eight."""
    system = {"name": "defacto", "phase": exchanges}
    (in_clear,), (of_sums,) = read(system, 16, (0,), 1), read(system, 16, (0,), 1, summed=True)
    assert len(in_clear | {0}) == clear == min(2 * exchanges + 1, 16)
    assert len(of_sums | {0}) == masked and of_sums <= {8}


@pytest.mark.parametrize("name", ["d_psgd", "sgp", "d2", "dsgt"])
def test_what_is_new_in_each_round_is_read_of_neighbors_in_the_first_alone(name):
    system = {"name": name, "weight": 0.5} if name == "d2" else name
    assert read(system, 16, (0,), 4) == [{1, 15}, set(), set(), set()]
    assert read(system, 16, (0,), 4, summed=True) == [set()] * 4


@pytest.mark.parametrize("name", ["d_psgd", "dsgt"])
def test_combine_first_is_heard_a_round_later(name):
    system = {"name": name, "order": "combine_first"}
    assert read(system, 16, (0,), 1) == [set()]
    assert read(system, 16, (0,), 2) == [{1, 15}, set()]


def test_two_around_a_node_read_it_in_every_round():
    """They have all that it mixes: its own value, and theirs."""
    assert read("d_psgd", 16, (0, 2), 4) == [{1, 3, 15}, {1}, {1}, {1}]
    assert read({"name": "d_psgd", "graph": "complete"}, 6, (0,), 3) == [{1, 2, 3, 4, 5}] * 3


def test_two_beside_each_other_undo_masks():
    """Each takes the other's value out of its sum, and of two there is one left."""
    assert read("d_psgd", 16, (0, 1), 3, summed=True) == [{2, 15}, set(), set()]
    assert read("d_psgd", 16, (0, 2), 3, summed=True) == [set()] * 3


@pytest.mark.parametrize(("graph", "undone"), [("torus", 0), ("erdos_renyi", 2), ("ring", 16)])
def test_how_many_pairs_of_sixteen_undo_masks(graph, undone):
    """Of all 120, in the first round; and on a ring those side by side."""
    of_all = symbols({"name": "d_psgd", "graph": graph}, 16, 1)
    pairs = [pair for pair in subsets(range(16), 2) if GossipListeners(pair, of_all, summed=True).reads(1)]
    assert len(pairs) == undone


def test_differences_of_overlapping_neighborhoods_undo_masks():
    """A wheel of four: each of the rim hears the two beside it and the hub, and two opposite ones hear the same. What the hub
    hears and what one of the rim hears differ by themselves and the node opposite, which they so have alone."""
    links = np.zeros((5, 5), bool)
    for one, other in [(0, 1), (1, 2), (2, 3), (3, 0), *((4, rim) for rim in range(4))]:
        links[one, other] = links[other, one] = True
    wheel = Topology((metropolis(links),))
    made = cell("d_psgd", clients={"total": 5}).architecture
    of_all = made.on_symbols(wheel, 1)
    assert set(GossipListeners((0, 2), of_all, summed=True).reads(1)) == set()
    assert set(GossipListeners((4, 0), of_all, summed=True).reads(1)) == {2}


def test_a_rule_that_is_no_sum_leaves_what_comes_after_it_unknown():
    found = GossipListeners((0,), symbols({"name": "d_psgd", "graph": "complete"}, 5, 3, linear=False), False)
    assert [set(found.reads(round)) for round in (1, 2, 3)] == [{1, 2, 3, 4}, set(), set()]


@pytest.mark.parametrize("place", ["nodes", "side_by_side", "around"])
def test_where_nodes_look_from(place):
    heard, seats = topology("ring", 12).adjacency, set()
    for seed in range(40):
        one, other = lookouts(heard, place, 2, Rng(seed))
        assert 0 <= one < other < 12
        seats.add(min(other - one, 12 - other + one))
    assert seats == {"side_by_side": {1}, "around": {2}}.get(place, seats) and (place != "nodes" or len(seats) > 3)


# Real trainings.

TRAINED = {"clients": {"total": 6}, "training": {"rounds": 3, "local_steps": 1, "local_epochs": None}}


def listened(system: Any, seat: tuple[int, ...], rounds: int, **changes: Any):
    """What nodes heard in a training, and all that was sent in truth."""
    made, setup = scene(system, **{**TRAINED, **changes})
    setup = replace(setup, observer=Observer(None, seat=seat))
    watched = [
        one for report, _ in zip(made.architecture.run(setup), range(rounds), strict=False) for one in report.watched
    ]
    graph = made.architecture.seats(setup)
    listeners = GossipListeners(seat, made.architecture.on_symbols(graph, rounds), bool(made.architecture.masks))
    return listeners, watched, graph, setup


SYSTEMS: list[tuple[Any, tuple[int, ...], int]] = [
    ("d_psgd", (0,), 1),
    ({"name": "d_psgd", "order": "combine_first"}, (0,), 2),
    ({"name": "d_psgd", "graph": "complete"}, (0,), 3),
    ({"name": "d2", "weight": 0.5, "graph": "complete"}, (0,), 3),
    ({"name": "sgp", "graph": "exponential"}, (0, 2), 2),
    ({"name": "dsgt", "graph": "torus"}, (0, 3), 3),
    ({"name": "dsgt", "order": "combine_first"}, (0,), 2),
    ({"name": "detag", "phase": 2}, (0,), 2),
    ({"name": "defacto", "phase": 3}, (0,), 1),
]


@pytest.mark.parametrize(("system", "seat", "rounds"), SYSTEMS, ids=str)
def test_what_is_solved_for_is_what_was_sent(system, seat, rounds):
    """From the very vectors that came to them, with rounding magnified no more than the solution takes; and somebody is solved."""
    listeners, watched, _, _ = listened(system, seat, rounds)
    checked = 0
    for round in range(1, rounds + 1):
        for node in listeners.reads(round):
            found, truth = listeners.solve_update(watched, round, (node,)), watched[round - 1]
            update = truth.sent.updates[node]
            assert (found.update - update).norm() < 2e-3 * update.norm(), (round, node)
            assert (found.model - truth.models[node]).norm() < 1e-4 * truth.models[node].norm().clamp(min=1)
            checked += 1
    assert checked >= 2


def test_what_a_neighbor_solves_for_is_what_training_by_hand_gives():
    """Float32, and the truth from the task itself, and not from what the nodes say that they sent."""
    listeners, watched, _, setup = listened("d_psgd", (0,), 1)
    rows = torch.empty(6, setup.task.dim)
    start = setup.task.initial_model(setup.rng.child("model"))
    setup.task.local_updates(start, tuple(range(6)), setup.cell.plan, setup.rng.child("round", 1), rows)
    assert len(listeners.reads(1)) == 2
    for node in listeners.reads(1):
        found = listeners.solve_update(watched, 1, (node,))
        assert (found.update - rows[node]).norm() < 1e-5 * rows[node].norm()
        others = [torch.cosine_similarity(found.update, rows[one], dim=0) for one in range(6) if one != node]
        assert max(others) < 0.9


def test_looking_changes_nothing():
    made, setup = scene("d_psgd", **TRAINED)
    alone = [report.model for report in made.architecture.run(setup)]
    seen = made.architecture.run(replace(setup, observer=Observer(2, seat=(0, 1), listens=1)))
    for clean, report in zip(alone, seen, strict=True):
        assert torch.equal(report.model, clean) and report.watched
