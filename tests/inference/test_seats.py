"""Nodes that look: attacks on privacy mounted by a neighbor, by several nodes, and by members of a collective."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedguard.bench.records.record import reproducible
from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import ONE_VECTOR, InferenceAttack, Observer, Reconstruction, Sight
from fedguard.registry import load_registry
from fedguard.rng import Rng

RING: dict[str, Any] = {"name": "d_psgd", "graph": "ring", "places": "in_order"}
#: Eight nodes that make one step on one digit each.
ONE: dict[str, Any] = {
    "task": {"data": "digits", "model": "mlp(hidden=(16,))"},
    "clients": {"total": 8},
    "training": {"rounds": 2, "local_steps": 1, "batch_size": 1, "lr": 0.1},
    "architecture": RING,
    "attack": "analytic",
}


def cell(**changes: Any) -> PlannedCell:
    observer = {"seat": "nodes", "victims": 8, **changes.pop("observer", {})}
    return build_cell(CellConfig.model_validate({**ONE, "observer": observer, **changes}), load_registry())


def record(seed: int = 0, **changes: Any):
    one = cell(**changes)
    assert not one.verdict.reasons, one.verdict.reasons
    assert not refusals([one], seed)
    return run_trial(one, seed, {})[0]


def inferred(seed: int = 0, **changes: Any):
    return record(seed, **changes)["result"]["inference"]


def beside(node: int, n: int = 8) -> set[int]:
    return {(node - 1) % n, (node + 1) % n}


def test_a_neighbor_restores_the_digits_of_both_and_of_nobody_else():
    found = inferred()
    (node,) = found["seat"]["nodes"]
    assert set(map(int, found["seat"]["solved"])) == beside(node)
    assert len(found["targets"]) == 2 and found["score"]["recovered"] == 1.0
    assert found["seat"]["solved"].keys() == {str(target["clients"][0]) for target in found["targets"]}
    assert found["seat"]["off"] < 1e-5
    assert (found["given"]["sees"], found["given"]["examples"]) == (["each_update", "model"], 1)
    assert str(node) not in found["seat"]["solved"]


def test_nodes_that_look_leave_the_training_as_it_is():
    seen, clean = record(), record(attack="none", observer={})
    assert seen["result"]["final_accuracy"] == clean["result"]["final_accuracy"]
    assert reproducible(record()) == reproducible(seen)
    assert seen["threat_card"]["in_words"] == (
        "A curious node watches round 1, and infers the others' data from each client's update and the global model, as far as it "
        "can be solved for."
    )
    assert seen["threat_card"]["observer"]["seat"] == "nodes"


@pytest.mark.parametrize(
    ("changes", "solved", "recovered"),
    [
        ({"observer": {"seat": "around", "nodes": 2, "round": 2}}, 1, 1.0),
        ({"observer": {"seat": "side_by_side", "nodes": 2}}, 2, 1.0),
        ({"architecture": {**RING, "order": "combine_first"}}, 2, 1.0),
        ({"architecture": {**RING, "masks": 24}, "observer": {"seat": "side_by_side", "nodes": 2}}, 2, 1.0),
        ({"architecture": {"name": "d_psgd", "graph": "complete"}, "observer": {"round": 2}}, 7, 1.0),
        ({"architecture": {"name": "d_psgd", "graph": "complete"}, "defense": "median"}, 7, 1.0),
        ({"architecture": {"name": "all_reduce", "topology": "all_to_all"}}, 7, 1.0),
        ({"architecture": {"name": "all_reduce", "masks": 24}, "observer": {"nodes": 7}}, 1, 1.0),
    ],
    ids=str,
)  # fmt: skip
def test_whoever_the_algebra_determines_is_read(changes, solved, recovered):
    found = inferred(**changes)
    assert len(found["seat"]["solved"]) == solved == len(found["targets"])
    assert found["score"]["recovered"] == recovered and found["seat"]["off"] < 1e-3


def test_members_of_a_ring_read_parts_and_all_between_two():
    one = inferred(architecture="all_reduce")["seat"]
    assert set(map(int, one["solved"])) == beside(one["nodes"][0]) and set(one["solved"].values()) == {1 / 8}
    two = inferred(architecture="all_reduce", observer={"seat": "around", "nodes": 2, "victims": 1})
    assert sorted(two["seat"]["solved"].values()) == [1 / 8, 1 / 8, 1.0]
    (target,) = two["targets"]
    assert two["seat"]["solved"][str(target["clients"][0])] == 1.0 == two["score"]["recovered"], "the whole one first"
    assert two["seat"]["off"] < 1e-5


class Reads(InferenceAttack):
    """Keeps its view."""

    name, goal = "reads", "reconstruction"
    needs = ONE_VECTOR
    views: list[Any] = []  # noqa: RUF012

    def infer(self, view):
        Reads.views.append(view)
        return Reconstruction(torch.zeros(view.count, *view.shape))


def views(spy: type[Reads] = Reads, **changes: Any):
    Reads.views.clear()
    one = cell(**changes).with_parts(inference=spy())
    result = run_trial(one, 0, {})[0]["result"]["inference"]
    setup = Workbench().task(one, 0), one.plan
    return list(Reads.views), result, *setup


def trained(task, plan, round: int = 1) -> torch.Tensor:
    """float32 ``[n, d]``: all updates of the first round, from the task itself."""
    model, n = task.initial_model(Rng(0).child("model")), len(task.sizes)
    return task.local_updates(model, tuple(range(n)), plan, Rng(0).child("round", round), torch.empty(n, task.dim))


def test_of_a_part_only_what_is_known_is_compared():
    """An eighth of the coordinates are there, the others 0; and no guess is judged by these."""
    found, told, task, plan = views(architecture="all_reduce")
    rows = trained(task, plan)
    assert len(found) == 2
    for view, target in zip(found, told["targets"], strict=True):
        (victim,) = target["clients"]
        there = view.target != 0
        assert 0 < there.float().mean() <= 1.01 / 8
        assert torch.allclose(view.target[there], rows[victim][there], rtol=1e-4, atol=1e-7)
        guess = torch.ones(task.dim)
        compared, observed = view.adapt(guess, view.target)
        assert torch.equal(observed, view.target) and abs(float(compared.sum()) - task.dim / 8) < 1.5


@pytest.mark.parametrize(("system", "hidden"), [({**RING, "masks": 24}, 2), ({"name": "all_reduce", "masks": 24}, 7)])
def test_under_masks_a_node_has_the_mean_of_others_without_its_own(system, hidden):
    (view,), told, task, plan = views(architecture=system)
    rows, (target,) = trained(task, plan), told["targets"]
    assert len(target["clients"]) == hidden and told["seat"]["solved"] == {} and told["seat"]["off"] is None
    mean = rows[target["clients"]].mean(0)
    assert (view.target - mean).norm() < 1e-3 * mean.norm()
    assert Sight.EACH_UPDATE not in view.granted and view.party.startswith("node ")
    (node,) = told["seat"]["nodes"]
    assert set(target["clients"]) == (beside(node) if hidden == 2 else set(range(8)) - {node})


def test_noise_of_a_nodes_own_is_in_what_its_neighbor_solves_for():
    """What comes is solved to the last digits, and it is noise: the digit is not in it."""
    noise = {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.01}
    found = inferred(protocol={"privacy": noise})
    assert found["seat"]["off"] < 1e-5 and len(found["targets"]) >= 1
    assert found["score"]["recovered"] == 0 and found["score"]["psnr"] < 20


def test_what_looks_at_the_final_model_has_the_nodes_own():
    """And no mean of all models, which nobody has."""

    class Final(Reads):
        watches = "model"
        needs = (Sight.MODEL,)

    (view,), told, _, _ = views(Final)
    (node,), (target,) = told["seat"]["nodes"], told["targets"]
    made = cell()
    setup = replace(set_up(made, 0, Workbench().task(made, 0)), observer=Observer(None, seat=(node,)))
    *_, last = made.architecture.run(setup)
    assert torch.equal(view.models[-1], last.watched[0].after) and not torch.allclose(
        view.models[-1], last.model, atol=1e-3
    )
    assert set(target["clients"]) == set(range(8)) - {node}


def test_all_rounds_of_a_neighbor_where_they_can_be_had():
    """What watches the whole training has a ring's neighbors in round 1, and those between two of its nodes in each."""
    one = {"attack": "gradient_cosine", "training": {**ONE["training"], "rounds": 3}, "observer": {"candidates": 50}}
    assert inferred(**one)["given"]["rounds"] == 1
    around = inferred(**{**one, "observer": {"candidates": 50, "seat": "around", "nodes": 2, "victims": 8}})
    assert max(around["seat"]["solved"].values()) == 1.0


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"architecture": "server"}, "observer.seat: nodes are nodes that hear others, and server has none"),
    ({"architecture": "btard"}, "every node of btard has the examples of all"),
    ({"architecture": "lone"}, "lone sends parts, or nothing"),
    ({"architecture": {"name": "ako", "graph": "complete"}}, "ako sends parts, or nothing"),
    ({"observer": {"seat": "server"}}, "set observer.seat to nodes of the graph"),
    ({"architecture": "all_reduce", "observer": {"seat": "server"}}, "set observer.seat to nodes that hear each other"),
    ({"observer": {"nodes": 8}}, "8 of 8 nodes look, and nobody is left"),
    ({"attack": "robbing_the_fed"}, "nodes that look hand out no model"),
    ({"observer": {"server": "malicious"}}, "nodes that look hand out no model"),
    ({"defense": "median", "observer": {"round": 2}}, "is no sum by the graph's weights"),
    ({"architecture": {"name": "defacto", "phase": 2}, "training": {**ONE["training"], "local_steps": 2}},
     "is the mean of 2 trainings"),
    ({"architecture": {**RING, "masks": 20}, "attack": "fed_mia"}, "fed_mia needs each client's update"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "why"), REFUSED)
def test_what_is_refused(changes, why):
    assert why in " ".join(cell(**changes).verdict.reasons)


@pytest.mark.parametrize(
    "changes",
    [
        {"observer": {"round": 2}},
        {"architecture": {**RING, "order": "combine_first"}, "observer": {"listens": 0}},
        {"architecture": {**RING, "masks": 20}, "observer": {"round": 2}},
    ],
)
def test_who_can_solve_for_nobody_is_told_before_anything_runs(changes):
    one = cell(**changes)
    assert not one.verdict.reasons
    assert "can solve for nobody's update of round" in refusals([one], 0)[one.id]


def test_a_server_that_looks_is_the_cell_that_it_was():
    one = build_cell(CellConfig.model_validate({"attack": "analytic"}), load_registry())
    assert set(one.canonical["observer"]) == {"server", "round", "victims", "labels", "candidates"}
    assert set(cell().canonical["observer"]) >= {"seat", "nodes", "listens"}
