"""What the pages on gossip in docs/ conclude, in smaller: at equal traffic, of corrections that rules break, of order, of one direction."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.systems.scenes import scene

TORUS, RING = ({"name": "d_psgd", "graph": graph} for graph in ("torus", "ring"))
UNLIKE = {"partition": {"kind": "dirichlet", "alpha": 1.0}}
FEW = {"total": 16, "malicious": 2}


def ends(architecture: Any, rounds: int, seeds: int = 2, steps: int = 5, **changes: Any) -> float:
    """Accuracy after so many rounds, the mean over seeds and nodes."""
    training = {"rounds": rounds, "local_steps": steps, "batch_size": 16, "lr": 0.1}
    found = []
    for seed in range(seeds):
        given = {"clients": FEW, "task": UNLIKE, "network": {}, "training": training} | changes
        made, setup = scene(architecture, seed, **given)
        *_, last = made.architecture.run(setup)
        found.append(last.evaluation.accuracy)
    return sum(found) / seeds


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["none", "dropout", "sign_flip", "ipm(tau=2)"])
@pytest.mark.parametrize(("system", "rounds"), [(TORUS, 20), (RING, 40)], ids=["torus", "ring"])
def test_at_equal_traffic_a_server_learns_more_and_loses_less(system, rounds, attack):
    """A round of 16 clients is 32 vectors around a server and over a ring, and 64 over a torus."""
    here, around = ends(system, rounds, attack=attack), ends("server", 40, attack=attack)
    assert around > here + 0.02
    if attack not in ("none", "dropout"):
        assert ends(system, rounds) - here > ends("server", 40) - around + 0.02


def test_at_equal_traffic_a_server_is_ahead_soon():
    """The cheap sibling: 512 vectors on one seed."""
    for attack in ("none", "ipm(tau=2)"):
        around = ends("server", 16, 1, attack=attack)
        assert around > ends(TORUS, 8, 1, attack=attack) + 0.02 and around > ends(RING, 16, 1, attack=attack) + 0.02


@pytest.mark.parametrize(("system", "rounds", "busiest"), [(TORUS, 20, 8), (RING, 40, 4)], ids=["torus", "ring"])
def test_what_equal_traffic_is(system, rounds, busiest):
    """1,280 vectors, as 40 rounds of 16 clients with a server take; and no place carries more than its neighbors send."""
    training = {"rounds": 1, "local_steps": 1, "batch_size": 16, "lr": 0.1}
    made, setup = scene(system, 0, clients={"total": 16}, training=training)
    (report,) = made.architecture.run(setup)
    assert rounds * report.nodes.messages == 40 * 2 * 16
    ends_of = Counter(node for link in report.nodes.links for node in link)
    assert set(ends_of.values()) == {busiest}


@pytest.mark.slow
def test_dissensus_undoes_the_mean_of_gossip():
    assert ends(TORUS, 40, attack="dissensus(epsilon=4)") < 0.35
    assert ends(TORUS, 40, attack="dissensus(epsilon=4)", defense="cs_plus") > 0.7


@pytest.mark.slow
def test_what_corrects_for_unlike_data_does_not_stand_a_rule_that_keeps_no_sums():
    for name, defense in (("d2", "nna"), ("d2", "geometric_median"), ("dsgt", "geometric_median")):
        system = {"name": name, "graph": "torus", "weight": 0.5}
        assert ends(system, 40, defense=defense) < 0.5 < 0.85 < ends(system, 40)


@pytest.mark.slow
def test_a_ring_of_one_direction_leaves_unlike_nodes_nearer_than_one_of_both():
    """It mixes slower, and the smallest |1 - lambda| is what counts."""
    unlike = {"task": {"partition": {"kind": "dirichlet", "alpha": 0.1}}, "clients": {"total": 16}, "steps": 2}
    one, both = (ends({"name": "d_psgd", "graph": graph}, 100, **unlike) for graph in ("directed_ring", "ring"))
    assert one > both + 0.04


@pytest.mark.slow
def test_another_peer_in_each_round_does_nearly_what_four_do():
    unlike = {"task": {"partition": {"kind": "dirichlet", "alpha": 0.1}}, "clients": {"total": 16}, "steps": 2}
    one, four, ring = (
        ends({"name": "d_psgd", "graph": graph}, 100, **unlike)
        for graph in ("one_peer_exponential", "exponential", "ring")
    )
    assert four - 0.08 < one and one > ring + 0.05


@pytest.mark.slow
def test_per_step_detag_does_not_care_how_little_nodes_listen():
    """A ring of eight sorted by label, with W_k = k W + (1 - k) I: as many steps, and forty times the vectors of D^2."""
    sorted_by_label = {"task": {"partition": "label_sorted"}, "clients": {"total": 8}, "steps": 1, "seeds": 1}
    for k in (1.0, 0.05, 0.01):
        assert ends({"name": "detag", "phase": 20, "weight": k}, 50, **sorted_by_label) > 0.8
    assert ends({"name": "d_psgd", "weight": 0.05}, 50, **sorted_by_label) < 0.4
    assert ends({"name": "d2", "weight": 0.05}, 100, **sorted_by_label) > 0.8
