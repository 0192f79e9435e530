"""Graphs beside what is known of them in closed form."""

from __future__ import annotations

from math import cos, pi, sin

import networkx
import numpy as np
import pytest

from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.simulated.topology import NAMES, assign_positions, topology

LINKED = [name for name in NAMES if name not in ("none", "file")]


@pytest.mark.parametrize("nodes", [4, 9, 16])
@pytest.mark.parametrize("name", LINKED)
def test_rows_and_columns_add_up_to_one(name, nodes):
    graph = topology(name, nodes)
    assert graph.rows_add_up and graph.columns_add_up
    for matrix in graph.matrices:
        assert np.allclose(matrix.sum(0), 1) and np.allclose(matrix.sum(1), 1) and (matrix >= -1e-12).all()


@pytest.mark.parametrize("name", LINKED)
def test_all_hear_of_all_in_the_end(name):
    assert networkx.is_strongly_connected(topology(name, 12).graph)


@pytest.mark.parametrize("nodes", [5, 16, 33])
def test_the_rings_have_the_eigenvalues_of_the_books(nodes):
    """1/3 + 2/3 cos(2 pi k / n) in both directions, (1 + exp(2 pi i k / n)) / 2 in one."""
    both, one = topology("ring", nodes), topology("directed_ring", nodes)
    assert both.gap == pytest.approx(2 / 3 * (1 - cos(2 * pi / nodes)), abs=1e-9)
    assert both.bias == pytest.approx(both.gap, abs=1e-9)
    assert one.gap == pytest.approx(1 - cos(pi / nodes), abs=1e-9)
    assert one.bias == pytest.approx(sin(pi / nodes), abs=1e-9)


def test_a_directed_ring_mixes_slower_and_has_less_bias():
    both, one = topology("ring", 16), topology("directed_ring", 16)
    assert one.gap < both.gap
    assert (round(one.bias, 3), round(both.bias, 3)) == (0.195, 0.051)


def test_one_peer_after_the_other_agree_exactly_after_a_turn():
    """Over 2^k nodes the k exchanges of one turn make the exact mean of all (Ying et al., NeurIPS 2021)."""
    graph = topology("one_peer_exponential", 16)
    turn = np.linalg.multi_dot(graph.matrices[::-1])
    assert len(graph.matrices) == 4 and np.allclose(turn, 1 / 16)
    assert graph.gap == pytest.approx(1)


def test_the_metropolis_weights_of_a_star():
    """1/n for each link, so that the middle keeps 1/n and a leaf 1 - 1/n."""
    matrix = topology("star", 6).at(0)
    assert np.allclose(matrix[0], 1 / 6)
    assert np.allclose(np.diag(matrix)[1:], 5 / 6) and np.allclose(matrix[1:, 0], 1 / 6)


def test_a_weight_shrinks_the_gap_in_proportion():
    full, tenth = topology("ring", 16), topology("ring", 16, weight=0.1)
    assert tenth.gap == pytest.approx(0.1 * full.gap)
    assert tenth.smallest == pytest.approx(1 - 0.1 * (1 - full.smallest))


def test_how_many_a_node_weighs():
    assert topology("ring", 16).sizes == (3,)
    assert topology("torus", 16).sizes == (5,)
    assert topology("star", 6).sizes == (2, 6)
    assert topology("complete", 6).sizes == (6,)
    assert topology("none", 6).sizes == (1,)
    assert topology("exponential", 16).sizes == (5,)


def test_the_fewest_nodes_that_part_the_others():
    cuts = {name: topology(name, 16).cut for name in ("ring", "directed_ring", "torus", "star", "complete")}
    assert cuts == {"ring": 2, "directed_ring": 1, "torus": 4, "star": 1, "complete": 15}


def test_a_random_graph_is_the_same_for_one_seed_and_another_for_another():
    same, again, other = (topology("erdos_renyi", 12, seed=seed).at(0) for seed in (0, 0, 1))
    assert np.array_equal(same, again) and not np.array_equal(same, other)


@pytest.mark.parametrize(
    ("name", "nodes", "settings", "what"),
    [
        ("torus", 7, {}, "torus has rows and columns of two nodes or more"),
        ("ring", 1, {}, "there is one client"),
        ("erdos_renyi", 40, {"p": 0.01}, "holds together"),
    ],
)
def test_graphs_that_there_are_not(name, nodes, settings, what):
    with pytest.raises(ConfigError, match=what):
        topology(name, nodes, **settings)


def hostile_at(name: str, places: str, malicious: set[int], seed: int = 0):
    """The graph with its nodes numbered as clients are, and the links among the malicious ones."""
    graph = assign_positions(topology(name, 16), malicious, places, Rng(seed))
    among = sum(bool(graph.adjacency[i, j]) for i in malicious for j in malicious)
    return graph, among


def test_in_order_nobody_moves():
    base = topology("star", 16)
    assert np.array_equal(assign_positions(base, {3}, "in_order", Rng(0)).at(0), base.at(0))


@pytest.mark.parametrize("places", ["drawn", "clustered", "highest_degree", "cut"])
def test_it_is_the_same_graph_wherever_clients_stand(places):
    base, graph = topology("erdos_renyi", 16), hostile_at("erdos_renyi", places, {1, 5})[0]
    assert networkx.is_isomorphic(base.graph, graph.graph)
    assert np.allclose(np.sort(base.at(0).ravel()), np.sort(graph.at(0).ravel()))


def test_malicious_clients_cluster():
    for seed in range(5):
        assert hostile_at("ring", "clustered", {2, 9, 14}, seed)[1] == 4  # three in a row: two links, both ways


def test_malicious_clients_take_the_middle_of_a_star():
    for places in ("highest_degree", "cut"):
        graph, _ = hostile_at("star", places, {7})
        assert graph.adjacency[7].sum() == 15


def test_malicious_clients_at_a_cut_part_a_ring():
    for seed in range(5):
        graph, _ = hostile_at("ring", "cut", {4, 11}, seed)
        rest = graph.graph.to_undirected()
        rest.remove_nodes_from([4, 11])
        assert not networkx.is_connected(rest)


def test_drawn_places_differ_by_seed():
    assert not np.array_equal(
        hostile_at("ring", "drawn", {1}, 0)[0].at(0), hostile_at("ring", "drawn", {1}, 1)[0].at(0)
    )


@pytest.mark.parametrize("places", ["clustered", "highest_degree", "cut"])
def test_without_links_one_place_is_like_another(places):
    graph = assign_positions(topology("none", 6), {1, 4}, places, Rng(0))
    assert np.array_equal(graph.at(0), np.eye(6))
