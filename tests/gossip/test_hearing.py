"""What real nodes hear, make and are told: the machinery that all algorithms without a server share."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fedguard.architectures.gossip.nodes import Nodes
from fedguard.contracts import PoisonAttack, Sight
from fedguard.simulated.topology import topology
from tests.systems.scenes import cell, models, models_of_common_noise, off, reports, scene

#: Float32 adds up in another order at each node.
ROUNDING = 1e-5

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"training": {"momentum": 0.9}},
    "worker momentum": {"training": {"worker_momentum": 0.5}},
    "fedprox": {"training": {"algorithm": "fedprox", "mu": 0.1}},
    "unlike clients": {"task": {"partition": {"kind": "dirichlet", "alpha": 0.3}}},
    "a clip at the clients": {"defense": "client_clipping(bound=0.1) >> mean"},
}
FULL: list[dict[str, Any]] = [
    *({"name": name} for name in ("d_psgd", "sgp", "d2", "dsgt")),
    *({"name": name, "phase": 1} for name in ("detag", "defacto")),
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("system", FULL, ids=lambda system: system["name"])
def test_over_a_complete_graph_real_nodes_are_the_server(system, settings):
    found = models({**system, "graph": "complete"}, **SETTINGS[settings])
    assert off(found, models(**SETTINGS[settings])) < ROUNDING


@pytest.mark.parametrize("name", ["d_psgd", "dsgt"])
def test_noise_of_each_nodes_own_is_that_of_a_client(name):
    """With the same noise in both cells: what proves an epsilon around a server proves it here."""
    noise = {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "sample_rate": 0.2}
    private = {"protocol": {"privacy": noise}, "training": {"local_steps": 2}}
    found = models_of_common_noise({"name": name, "graph": "complete"}, **private)
    assert off(found, models_of_common_noise(**private)) < ROUNDING


def test_what_a_node_sends_first_is_its_update_in_clear():
    """Every model is the same at first: so a neighbor reads what a server without masks reads, to the last digits."""
    found, setup = nodes({"name": "d_psgd", "graph": "ring"})
    sent = found.start + found.updates(found.start)
    rows = torch.empty(6, setup.task.dim)
    plan, rng = setup.cell.training.plan(), setup.rng.child("round", 1)
    setup.task.local_updates(found.start[0], tuple(range(6)), plan, rng, rows)
    read = sent - found.start
    assert float((read - rows).norm() / rows.norm()) < 1e-6


@pytest.mark.parametrize("defense", ["median", "trimmed_mean", "krum", "geometric_median", "nnm >> trimmed_mean"])
def test_over_a_complete_graph_each_rule_gives_each_node_what_it_gives_the_server(defense):
    told = {"defense": defense, "clients": {"total": 7, "assumed_f": 1}}
    assert off(models({"name": "d_psgd", "graph": "complete"}, **told), models(**told)) < 1e-4


def test_over_a_complete_graph_a_lie_to_each_is_the_lie_to_the_server():
    told = {"attack": "sign_flip", "clients": {"total": 7, "malicious": 2}, "defense": "median"}
    assert off(models({"name": "d_psgd", "graph": "complete"}, **told), models(**told)) < ROUNDING


def test_combine_first_is_another_way():
    assert off(models({"name": "d_psgd", "graph": "complete", "order": "combine_first"}), models()) > 0.001


def nodes(system: Any, **changes: Any) -> tuple[Nodes, Any]:
    made, setup = scene(system, **changes)
    graph = made.architecture.topology(setup.cell.clients.total)
    found = Nodes(setup, graph, made.architecture.broadcast)
    found.begin(1)
    return found, setup


def draws(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_the_mean_weighs_by_the_graph():
    found, setup = nodes({"name": "d_psgd", "graph": "star"})
    values, about = draws(6, setup.task.dim), draws(6, setup.task.dim, 1)
    want = torch.from_numpy(topology("star", 6).at(0)).float() @ values
    assert torch.allclose(found.mix_values(values, about), want, atol=1e-5)


@pytest.mark.parametrize("graph", ["ring", "directed_ring", "torus", "star"])
def test_a_rule_gets_a_nodes_own_row_and_those_that_it_hears(graph):
    found, setup = nodes({"name": "d_psgd", "graph": graph}, defense="median")
    values, about = draws(6, setup.task.dim), draws(6, setup.task.dim, 1)
    matrix = topology(graph, 6).at(0)
    for node, made in enumerate(found.mix_values(values, about)):
        heard = [j for j in range(6) if matrix[node, j] or j == node]
        want = np.median(values[heard].numpy(), axis=0)
        assert np.allclose(made.numpy(), want, atol=1e-5)


class Tagged(PoisonAttack):
    """Tells each node its own number, and writes down what it is shown."""

    name = "tagged"
    needs = (Sight.HONEST_UPDATES | Sight.GRAPH | Sight.MODEL,)
    seen: ClassVar[list[Any]] = []

    def craft(self, view):
        Tagged.seen.append(
            (view.receiver, view.honest_clients, view.mixing, view.model.clone(), view.honest.clone(), view.malicious)
        )
        return torch.full((view.f, view.dim), 1000.0 + view.receiver)


def lied_to(attack: PoisonAttack, system: Any, malicious: set[int], **changes: Any) -> tuple[Nodes, Any]:
    """Real nodes in order of their numbers, of which these lie."""
    from dataclasses import replace

    made, setup = scene(system, attack="sign_flip", clients={"malicious": len(malicious)}, **changes)
    sees = attack.needs[0]
    setup = replace(setup, malicious=frozenset(malicious)).with_parts(attack=attack, attack_sees=sees)
    found = Nodes(setup, made.architecture.topology(6), made.architecture.broadcast)
    found.begin(1)
    return found, setup


def test_each_neighbor_is_told_something_else_made_for_it():
    Tagged.seen.clear()
    found, setup = lied_to(Tagged(), {"name": "d_psgd", "graph": "ring"}, {2})
    values, about = draws(6, setup.task.dim), draws(6, setup.task.dim, 1)
    made = found.mix_values(values, about)
    assert sorted(receiver for receiver, *_ in Tagged.seen) == [1, 3]
    matrix = topology("ring", 6).at(0)
    for receiver, honest, mixing, model, rows, malicious in Tagged.seen:
        assert malicious == (2,) and set(honest) == {receiver, receiver - 1, receiver + 1} - {2}
        assert torch.equal(model, about[receiver])
        assert torch.allclose(rows, values[list(honest)] - about[receiver])
        assert mixing.tolist() == pytest.approx([matrix[receiver, j] for j in (*honest, 2)])
        lie = about[receiver] + 1000.0 + receiver
        others = sum(matrix[receiver, j] * values[j] for j in honest)
        assert torch.allclose(made[receiver], others + matrix[receiver, 2] * lie, atol=1e-2)
    plain = torch.from_numpy(matrix).float() @ values
    for node in (0, 2, 4, 5):  # who hears no liar, and the liar itself
        assert torch.allclose(made[node], plain[node], atol=1e-5)


class Loud(PoisonAttack):
    """Sends one large number, whoever hears it."""

    name = "loud"
    needs = (Sight.HONEST_UPDATES,)

    def craft(self, view):
        return torch.full((view.f, view.dim), 1000.0)


def test_where_all_hear_the_same_a_lie_is_one_for_all():
    """The lie is made for the mean of the honest models, so each node finds the same vector on the air."""
    found, setup = lied_to(Loud(), {"name": "d_psgd", "graph": "ring", "broadcast": True}, {2})
    values, about = draws(6, setup.task.dim), draws(6, setup.task.dim, 1)
    made, matrix = found.mix_values(values, about), topology("ring", 6).at(0)
    center = about[[0, 1, 3, 4, 5]].mean(0)
    for node in (1, 3):
        rest = sum(matrix[node, j] * values[j] for j in range(6) if j != 2)
        assert torch.allclose((made[node] - rest) / matrix[node, 2], center + 1000, atol=1e-2)


@pytest.mark.parametrize("defense", ["nna", "cs_plus", "clipped_gossip", "bridge", "ubar"])
@pytest.mark.parametrize("broadcast", [False, True])
def test_liars_who_know_the_rule_try_it_as_a_node_would(broadcast, defense):
    """Their copy of a rule needs to know which row is the node's own; where all hear the same any honest one stands for it."""
    system = {"name": "d_psgd", "graph": "torus", "broadcast": broadcast}
    told = {"clients": {"total": 9, "malicious": 2}, "attack": "min_max", "defense": defense, "training": {"rounds": 2}}
    *_, last = reports(system, **told)
    assert bool(last.model.isfinite().all())


class Mute(PoisonAttack):
    name = "mute"
    needs = (Sight.NOTHING,)

    def silent(self, view):
        return True

    def craft(self, view):
        raise AssertionError("whoever is silent crafts nothing")


@pytest.mark.parametrize("broadcast", [False, True])
def test_the_weight_of_who_is_silent_is_the_nodes_own(broadcast):
    found, setup = lied_to(Mute(), {"name": "d_psgd", "graph": "ring", "broadcast": broadcast}, {2})
    values = draws(6, setup.task.dim)
    made, matrix = found.mix_values(values, torch.zeros_like(values)), topology("ring", 6).at(0)
    want = (matrix[1, 1] + matrix[1, 2]) * values[1] + matrix[1, 0] * values[0]
    assert torch.allclose(made[1], want, atol=1e-5)


class Broken(Loud):
    name = "broken"

    def craft(self, view):
        return torch.full((view.f, view.dim), float("nan"))


def test_what_is_not_finite_is_dropped_and_told():
    found, setup = lied_to(Broken(), {"name": "d_psgd", "graph": "ring"}, {2})
    values = draws(6, setup.task.dim)
    made = found.mix_values(values, torch.zeros_like(values))
    assert bool(made.isfinite().all())
    assert found.report(1, made).not_finite == (2,)


def test_a_rule_is_told_the_share_of_a_neighborhood_rounded_up_and_says_when_it_is_outvoted():
    """Of six nodes two are malicious: of three rows a rule reckons with one, and a node between both has two."""
    found, setup = lied_to(Loud(), {"name": "d_psgd", "graph": "ring"}, {1, 3}, defense="median")
    values = draws(6, setup.task.dim)
    report = found.report(1, found.mix_values(values, torch.zeros_like(values)))
    assert setup.assume_f_among(3) == 1
    assert report.nodes.outvoted == 1  # node 2


class Remembers(Loud):
    """Sends how often it has been at work on this node before."""

    name = "remembers"

    def craft(self, view):
        return torch.full((view.f, view.dim), float(view.state.get("times", torch.zeros(()))))

    def remember(self, view, crafted):
        return {"times": view.state.get("times", torch.zeros(())) + 1}


def test_liars_remember_each_neighbor_and_each_channel_by_itself():
    found, setup = lied_to(Remembers(), {"name": "d_psgd", "graph": "ring"}, {2})
    zeros = torch.zeros(6, setup.task.dim)
    for times in range(3):
        made = found.mix_values(zeros, zeros)
        assert made[1].mean() == pytest.approx(times / 3, abs=1e-5) == float(made[3].mean())
    assert float(found.mix_values(zeros, zeros, trackers_at=zeros)[1].abs().max()) == 0


def test_nodes_wait_for_their_neighbors_alone():
    """A slow node at one end of a directed ring holds up the next one after one round, and the one after that after two."""
    slow = {"compute": {"seconds": 1e-6, "slow": {"share": 1 / 6, "factor": 1e9}}, "link": {"latency": 1}}
    found, setup = nodes({"name": "d_psgd", "graph": "directed_ring"}, network=slow)
    x = found.start
    late: list[int] = []
    for _ in range(3):
        x = found.mix_values(x + found.updates(x), about=x)
        late.append(sum(seconds > 100 for seconds in found.traffic._clocks))
    assert late == [2, 3, 4]


def test_bytes_and_messages_are_those_of_the_links():
    for graph, links in (("ring", 12), ("directed_ring", 6), ("complete", 30), ("star", 10)):
        *_, last = reports({"name": "d_psgd", "graph": graph})
        assert last.nodes.messages == 4 * links
        assert last.moment.bytes_up == last.moment.bytes_down == 4 * links * 4 * 650
    *_, last = reports({"name": "dsgt", "graph": "ring"})
    assert last.nodes.messages == 2 * 4 * 12 - 12  # the tracker of the last round is of use to nobody
    *_, last = reports({"name": "defacto", "graph": "ring", "phase": 3})
    assert last.nodes.messages == 3 * 4 * 12


def test_figures_are_the_honest_nodes_and_the_mean_model_is_apart():
    changes = {"clients": {"malicious": 2}, "attack": "sign_flip", "task": {"partition": "label_sorted"}}
    made, setup = scene({"name": "d_psgd", "graph": "ring"}, **changes)
    *_, last = made.architecture.run(setup)
    told = last.nodes
    assert told.honest == tuple(sorted(set(range(6)) - setup.malicious))
    assert last.evaluation.accuracy == pytest.approx(sum(told.accuracy) / 4)
    assert told.mean_model == setup.task.evaluate(last.model).accuracy
    assert told.consensus > 0


def test_two_trainings_with_one_seed_are_the_same_to_the_last_bit():
    changes = {"attack": "min_max", "clients": {"total": 7, "malicious": 2}, "defense": "trimmed_mean"}
    graph = {"name": "dsgt", "graph": "complete"}
    assert torch.equal(models(graph, **changes), models(graph, **changes))


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("d_psgd", {"protocol": {"secure_aggregation": "full"}}, "Set secure_aggregation: none"),
    ("d_psgd", {"clients": {"per_round": 3}}, "all nodes take part in each round"),
    ("d_psgd", {"training": {"server_lr": 0.5}}, "has no server that could take a step"),
    ("d_psgd", {"training": {"server_momentum": 0.5}}, "has no server that could take a step"),
    ("d_psgd", {"training": {"algorithm": "scaffold", "local_steps": 2}}, "settles something at the server"),
    ("d_psgd", {"protocol": {"dropout": {"rate": 0.1}}}, "would be waited for for ever"),
    ("dsgt", {"network": {"link": {"loss": 0.1}}}, "would leave it wrong for good"),
    ({"name": "d_psgd", "graph": "file"}, {}, "Set both graph: file and file"),
    ("d_psgd", {"attack": "dlg"}, "is mounted by a server"),
    ("d_psgd", {"defense": "kardam"}, "no update has an age"),
    ("d2", {}, "smallest eigenvalue is above -1/3"),
    ({"name": "d_psgd", "graph": "torus"}, {"clients": {"total": 7}}, "a torus has rows and columns"),
    ("lone", {"defense": "median", "clients": {"malicious": 1}, "attack": "sign_flip"}, "take a denser graph"),
    (
        {"name": "d_psgd", "graph": "star"},
        {"defense": "krum", "clients": {"total": 12, "malicious": 1}, "attack": "sign_flip"},
        "take a denser graph",
    ),
    (
        {"name": "d_psgd"},
        {"protocol": {"privacy": {"kind": "client", "noise_multiplier": 1.0}}},
        "there is nobody to add noise for others",
    ),
]


@pytest.mark.parametrize(("system", "settings", "why"), REFUSED)
def test_what_is_refused(system, settings, why):
    assert why in " ".join(cell(system, **settings).verdict.reasons)


def test_a_rule_that_needs_a_node_is_refused_at_a_server():
    (why,) = cell("server", defense="clipped_gossip").verdict.reasons
    assert "which has no update" in why
