"""What malicious nodes can do without a server alone: weights, hermits, eigenvectors; and another lie to each neighbor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedguard.architectures.gossip.nodes import Nodes
from fedguard.contracts import PoisonAttack, Sight, lies
from fedguard.contracts.channels import WEIGHT
from fedguard.registry import load_registry
from fedguard.simulated.topology import topology
from tests.gossip.test_gossip_formulae import EXACT, NODES, ROUNDS, Quadratics, ours
from tests.gossip.test_hearing import draws, lied_to, nodes
from tests.systems.scenes import cell, reports, scene

UNLIKE = {"partition": {"kind": "dirichlet", "alpha": 0.3}}


# Push-sum weights.


class Boasting(Quadratics):
    """Node 2 claims ten times its weight, and sends honest values; no gradient."""

    factor = 10.0

    def weights(self, own):
        self.told = own.copy()
        self.told[2] *= self.factor
        return self.told

    def updates(self, models):
        return torch.zeros_like(models)


def boasted(graph: str, cap: float | None, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Push-sum as plain loops over numerators and weights: the ratios in the end, and the sum of all weights in each round."""
    start = np.random.default_rng(5).normal(size=NODES)
    x, w, mass = start.copy(), np.ones(NODES), []
    for turn in range(ROUNDS):
        heard = topology(graph, NODES).at(turn) != 0
        told = w * np.where(np.arange(NODES) == 2, factor, 1.0)
        z = x / w
        x, w_next = np.zeros(NODES), np.zeros(NODES)
        for i in range(NODES):
            kept = told[i] / heard[:, i].sum()
            for j in range(NODES):
                if heard[i, j]:
                    share = told[j] / heard[:, j].sum()
                    if cap is not None and j != i:
                        share = min(share, cap * kept)
                    x[i] += share * z[j]
                    w_next[i] += share
        w = w_next
        mass.append(w.sum())
    return x / w, np.array(mass)


@pytest.mark.parametrize("graph", ["directed_ring", "exponential"])
@pytest.mark.parametrize(("cap", "factor"), [(None, 10.0), (2.0, 10.0), (1.0, 10.0), (2.0, 1.0)])
def test_weights_that_are_claimed_are_those_of_the_loop(graph, cap, factor):
    found = Boasting(graph)
    found.factor = factor
    found.start = torch.from_numpy(np.random.default_rng(5).normal(size=NODES))[:, None]
    theirs, mass = boasted(graph, cap, factor)
    assert np.abs(ours({"name": "sgp", "graph": graph, "cap": cap}, found)[-1][:, 0] - theirs).max() < EXACT * 10
    if factor == 1:
        assert np.abs(mass - NODES).max() < 1e-9  # honest weights are never cut here, and none is lost
    elif cap is None:
        assert mass[-1] > 2 * NODES and (np.diff(mass) > 0).all()  # it grows for ever


class WeightOnly(PoisonAttack):
    """Claims so many times its weight, and sends one large number."""

    name = "weight_only"
    needs = (Sight.HONEST_UPDATES,)

    def craft(self, view):
        return torch.full((view.f, view.dim), 100.0)

    @lies(WEIGHT)
    def claim_weight(self, weight):
        return 1000 * weight


def test_a_claim_fills_the_mean_of_who_hears_it_and_a_cap_leaves_it_a_share():
    """On a directed ring a node keeps half and hears half: with a weight of a thousand times as much, 1000/1001 of it."""
    found, setup = lied_to(WeightOnly(), {"name": "sgp", "graph": "directed_ring"}, {2})
    system = load_registry().build("architecture", {"name": "sgp", "graph": "directed_ring"})
    for cap, share in ((None, 1000 / 1001), (1.0, 1 / 2), (3.0, 3 / 4)):
        found, setup = lied_to(WeightOnly(), {"name": "sgp", "graph": "directed_ring"}, {2})
        system = load_registry().build("architecture", {"name": "sgp", "graph": "directed_ring", "cap": cap})
        first = next(system.models(found))
        moved = (first - found.start)[3]
        assert float(moved.mean()) == pytest.approx(100 * share, rel=1e-2)


FEW = {
    "clients": {"total": 8, "malicious": 1},
    "training": {"rounds": 15, "local_steps": 2, "batch_size": 16, "lr": 0.2},
}


def test_a_claimed_weight_ruins_any_rule_as_it_shrinks_the_steps_of_others_and_a_cap_bounds_it():
    def end(cap=None, **changes):
        *_, last = reports(
            {"name": "sgp", "graph": "exponential", "cap": cap}, **FEW | {"evaluation": {"every": 15}} | changes
        )
        return last.evaluation.accuracy

    lie = "inflated_weight(factor=100)"
    assert max(end(attack=lie), end(attack=lie, defense="trimmed_mean")) < 0.5
    assert min(end(1.0, attack=lie), end(attack="sign_flip"), end(1.0, attack=lie, defense="trimmed_mean")) > 0.7


def test_weights_of_nobody_but_sgp_are_asked_for():
    reasons = cell("d_psgd", attack="inflated_weight", clients={"malicious": 1}).verdict.reasons
    assert reasons == ("inflated_weight lies about its push-sum weight, and d_psgd does not go by that here. Use sgp.",)
    assert "cap" not in cell("sgp").canonical["architecture"]


# Hermits.


@pytest.mark.parametrize("defense", ["mean", "median"])
def test_a_hermit_keeps_its_value_and_sends_it_as_it_is(defense):
    found, setup = nodes(
        {"name": "d_psgd", "graph": "ring"}, attack="hermit", clients={"malicious": 1}, defense=defense
    )
    (hermit,) = setup.malicious
    values, about = draws(6, setup.task.dim), draws(6, setup.task.dim, 1)
    made = found.mix_values(values, about)
    assert torch.equal(made[hermit], values[hermit])
    plain, _ = nodes({"name": "d_psgd", "graph": "ring"}, defense=defense, clients={"assumed_f": 1})
    others = [node for node in range(6) if node != hermit]
    assert torch.allclose(made[others], plain.mix_values(values, about)[others], atol=1e-5)
    assert found.updates(about)[hermit].norm() > 0  # it trains
    assert found.report(1, made).malicious == setup.malicious


def test_a_hermit_ends_where_it_would_alone_and_costs_its_neighbors():
    settings = FEW | {"task": {"partition": "label_sorted"}, "attack": "hermit"}
    made, setup = scene({"name": "d_psgd", "graph": "ring"}, **settings)
    (hermit,) = setup.malicious
    graph = made.architecture.topology(8)
    found = Nodes(setup, graph, broadcast=False)
    found.begin(1)
    alone, other = scene("lone", **settings | {"attack": "none"})
    lone = Nodes(other, alone.architecture.topology(8), broadcast=False)
    ends = []
    for system, world in ((made.architecture, found), (alone.architecture, lone)):
        models = system.models(world)
        for round in range(1, 4):
            world.begin(round)
            x = next(models)
        ends.append(x[hermit])
    assert torch.allclose(*ends, atol=1e-6)
    clean, hurt = (
        list(reports({"name": "d_psgd", "graph": "complete"}, **settings | {"attack": attack}))[-1].evaluation.accuracy
        for attack in ("none", "hermit")
    )
    assert hurt < clean - 0.05


def test_hermits_need_others():
    assert (
        "what its nodes make of others' values"
        in cell("lone", attack="hermit", clients={"malicious": 1}).verdict.reasons[0]
    )


# The slowest eigenvector.


@pytest.mark.parametrize("graph", ["ring", "torus", "star"])
def test_the_slowest_disagreement_is_that_of_the_second_eigenvalue(graph):
    """On graphs with Metropolis weights the Laplacian is I - W: its eigenvector is W's own, of lambda_2."""
    found = topology(graph, 8)
    w, e = found.at(0), found.slowest
    second = np.sort(np.linalg.eigvalsh(w))[-2]
    assert np.allclose(w @ e, second * e) and abs(e.sum()) < 1e-9 and np.linalg.norm(e) == pytest.approx(1)


def test_spectral_dissensus_is_its_formula_over_the_honest_nodes():
    attack = load_registry().build("attack", "spectral_dissensus(epsilon=3)")
    found, setup = lied_to(attack, {"name": "d_psgd", "graph": "ring"}, {2})
    values, about = draws(6, setup.task.dim), draws(6, setup.task.dim, 1)
    made, w = found.mix_values(values, about), topology("ring", 6).at(0)
    honest = [0, 1, 3, 4, 5]  # a path from 3 to 1
    between = w[np.ix_(honest, honest)].copy()
    np.fill_diagonal(between, 0)
    values_of, vectors = np.linalg.eigh(np.diag(between.sum(1)) - between)
    e = dict(zip(honest, vectors[:, 1], strict=True))
    assert abs(values_of[0]) < 1e-9 < values_of[1]
    along = sum(e[j] * values[j].double() for j in honest)
    for i in (1, 3):
        lie = values[i].double() + 3 * e[i] * along
        want = sum(w[i, j] * values[j].double() for j in honest) + w[i, 2] * lie
        assert torch.allclose(made[i].double(), want, atol=1e-5)


# Inner products around the receiver's own value.

#: Two liars, and six nodes that all hear each other: h = 4 honest values at each node.
AROUND: dict[str, Any] = {"name": "d_psgd", "graph": "complete"}


def around_receiver(values, about, honest, i, f, reach):
    """The message to node i as a plain loop in float64, relative to the model that the node has had before."""
    rows = {j: values[j].double() - about[i].double() for j in honest}
    mean = sum(rows.values()) / len(rows)
    away = sorted(float((rows[j] - rows[i]).norm()) for j in honest if j != i)
    return rows[i] - reach * away[len(honest) - f - 1] * mean / mean.norm()


@pytest.mark.parametrize("reach", [0.99, 0.5])
def test_receiver_ipm_is_its_formula_around_each_receiver(reach):
    attack = load_registry().build("attack", f"receiver_ipm(reach={reach})")
    found, setup = lied_to(attack, AROUND, {1, 4})
    setup = setup.with_parts(attack_sees=attack.needs[1])
    found = Nodes(setup, topology("complete", 6), broadcast=False)
    found.begin(1)
    values, about = draws(6, setup.task.dim), draws(6, setup.task.dim, 1)
    values *= torch.tensor([1.0, 1, 3, 0.2, 1, 7])[:, None]  # lopsided: no two distances are alike
    made, w, honest = found.mix_values(values, about), topology("complete", 6).at(0), (0, 2, 3, 5)
    lies = {i: about[i].double() + around_receiver(values, about, honest, i, 2, reach) for i in honest}
    assert len({tuple(lie.tolist()) for lie in lies.values()}) == 4
    for i in honest:
        want = sum(w[i, j] * values[j].double() for j in honest) + (w[i, 1] + w[i, 4]) * lies[i]
        assert torch.allclose(made[i].double(), want, rtol=1e-4, atol=1e-4), i


def test_receiver_ipm_passes_the_nearest_neighbors_of_each_receiver_and_a_longer_one_does_not():
    """NNA averages the h values nearest to a node's own: both messages are among them below that distance, neither above it."""
    values, about = draws(6, 650), draws(6, 650, 1)
    values *= torch.tensor([1.0, 1, 3, 0.2, 1, 7])[:, None]
    honest = (0, 2, 3, 5)
    for reach, passes in ((0.99, True), (1.01, False)):
        attack = load_registry().build("attack", f"receiver_ipm(reach={reach})")
        found, setup = lied_to(attack, AROUND, {1, 4}, defense="nna")
        found = Nodes(setup.with_parts(attack_sees=attack.needs[1]), topology("complete", 6), broadcast=False)
        found.begin(1)
        made = found.mix_values(values, about)
        for i in honest:
            lie = around_receiver(values, about, honest, i, 2, reach)
            near = sorted((j for j in honest if j != i), key=lambda j: float((values[j] - values[i]).norm()))
            rows = [values[j].double() - about[i].double() for j in (i, *near)]
            kept = [*rows[:2], lie, lie] if passes else rows[:3]
            rest = torch.stack(kept).sum(0) / 4
            if passes:
                assert torch.allclose(made[i].double() - about[i].double(), rest, rtol=1e-3, atol=1e-3), (i, reach)
            else:  # both tie, and one place is left between them
                assert torch.allclose(made[i].double() - about[i].double(), rest + lie / 4, rtol=1e-3, atol=1e-3), i


def test_receiver_ipm_needs_the_honest_values_and_a_graph():
    granted = {"threat": {"knowledge": ["own_data", "model", "defense"]}, "clients": {"malicious": 1}}
    reasons = cell({"name": "d_psgd", "graph": "ring"}, attack="receiver_ipm", **granted).verdict.reasons
    assert "receiver_ipm needs the honest clients' updates" in reasons[0]
    for other in ("server", {"name": "d_psgd", "graph": "ring", "broadcast": True}):
        assert cell(other, attack="receiver_ipm", clients={"malicious": 1}).verdict.reasons, other


@pytest.mark.parametrize("defense", ["clipped_gossip", "nna", "geometric_median"])
def test_receiver_ipm_with_the_rule_moves_a_node_no_less_than_without(defense):
    """By the distance of what the rule makes from the mean honest value, at each receiver."""
    attack = load_registry().build("attack", "receiver_ipm")
    away = {}
    for sees in attack.needs:
        found, setup = lied_to(attack, AROUND, {1, 4}, defense=defense)
        found = Nodes(setup.with_parts(attack_sees=sees), topology("complete", 6), broadcast=False)
        found.begin(1)
        values, about = draws(6, setup.task.dim), draws(6, setup.task.dim, 1)
        made = found.mix_values(values, about)
        away[sees] = [float((made[i] - values[[0, 2, 3, 5]].mean(0)).norm()) for i in (0, 2, 3, 5)]
    known, unknown = (away[sees] for sees in attack.needs)
    assert all(one >= other * (1 - 1e-4) for one, other in zip(known, unknown, strict=True))
    assert sum(known) > sum(unknown)


# Each attack of the catalogue tells each neighbor something else.

#: These say the same to all, and why.
ALIKE = {
    "nan": "there is but one", "infinity": "there is but one",
}  # fmt: skip


def _attacks() -> list[str]:
    return [cls.name for _, cls in load_registry().classes(["attack"]) if issubclass(cls, PoisonAttack)]


@pytest.mark.parametrize("name", _attacks())
def test_each_attack_of_the_catalogue_is_made_anew_for_each_neighbor(name, monkeypatch):
    """What two neighbors of a liar in a ring hear differs, once their models do; or the attack says nothing at all."""
    settings: dict[str, Any] = {
        "attack": name,
        "clients": {"malicious": 1, "assumed_f": 1},
        "training": {"rounds": 2, "local_steps": 2},
    }
    made = cell({"name": "d_psgd", "graph": "ring"}, task=UNLIKE, **settings)
    if made.verdict.reasons:
        assert any(
            "does not go by that here" in why or "needs" in why or "nobody acts" in why for why in made.verdict.reasons
        ), made.verdict.reasons
        return
    made, setup = scene({"name": "d_psgd", "graph": "ring"}, task=UNLIKE, **settings)
    told: dict[tuple[int, int], torch.Tensor] = {}
    craft = Nodes._craft

    def overheard(self, place, sides, values):
        craft(self, place, sides, values)
        told[self._round, place.node] = (sides.malicious_rows[0] + place.about).clone()

    monkeypatch.setattr(Nodes, "_craft", overheard)
    list(made.architecture.run(setup))
    if not told:
        assert name in ("dropout", "hermit")  # nothing is crafted
        return
    (_, one), (_, other) = sorted((node, row) for (round, node), row in told.items() if round == 2)
    assert torch.equal(one.nan_to_num(), other.nan_to_num()) == (name in ALIKE)
