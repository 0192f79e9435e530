"""Inference attacks in suites: who sees what, what is refused, what records say; and that the training is left alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.attacks.inference.membership.least_squares import noise_variance
from fedguard.bench.records.pictures import load
from fedguard.bench.records.record import reproducible
from fedguard.bench.running.inference.targets import alike
from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import ONE_VECTOR, Examples, InferenceAttack, Membership, Reconstruction, Sight
from fedguard.errors import ContractError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.shadows import Shadows

#: Ten clients on digits; each sends the gradient of one example.
ONE_EXAMPLE = {
    "clients": {"total": 10},
    "training": {"algorithm": "fedsgd", "rounds": 3, "batch_size": 1, "lr": 0.1},
}


def cell(**changes) -> PlannedCell:
    return build_cell(CellConfig.model_validate({**ONE_EXAMPLE, **changes}), load_registry())


def inferred(one: PlannedCell, seed: int = 0, album=lambda name, claim, truth: None):
    record, _ = run_trial(one, seed, {}, album=album)
    return record["result"]["inference"]


def test_a_curious_server_leaves_the_training_as_it_is():
    clean, _ = run_trial(cell(), 0, {})
    watched, _ = run_trial(cell(attack="analytic"), 0, {})
    assert watched["result"]["final_accuracy"] == clean["result"]["final_accuracy"]
    assert clean["result"]["inference"] is None
    card = watched["threat_card"]
    assert (card["goal"], card["malicious"]) == ("reconstruction", 0)
    assert card["in_words"].startswith(
        "A curious server watches round 1, and infers the clients' data; it sees each client"
    )
    again, _ = run_trial(cell(attack="analytic"), 0, {})
    assert reproducible(again) == reproducible(watched)


def test_what_it_recovers_are_the_examples_of_that_batch():
    """The first layer gives x exactly; the pictures hold the examples that the clients drew in the watched round."""
    taken = {}
    one = cell(attack="analytic", observer={"round": 2, "victims": 3})
    found = inferred(one, album=lambda name, claim, truth: taken.update({name: (claim, truth)}))
    assert found["score"]["recovered"] == 1.0 and found["score"]["psnr"] > 100
    assert [len(target["clients"]) for target in found["targets"]] == [1, 1, 1]
    task = Workbench().task(one, 0)
    plan, rng = one.plan, Rng(0).child("round", 2)
    for number, target in enumerate(found["targets"]):
        claim, truth = taken[f"target-{number}"]
        used = task.examples_used(target["clients"][0], plan, rng)
        assert torch.equal(used.x, truth.x) and len(used) == 1
        assert torch.allclose(claim.x, truth.x, atol=1e-4)
    given = found["given"]
    assert (given["examples"], given["local_steps"], given["labels"]) == (1, 1, False)
    assert given["vector"] == "one client's update"


def test_under_masks_it_has_one_sum():
    found = inferred(cell(attack="analytic", protocol={"secure_aggregation": "full"}))
    (target,) = found["targets"]
    assert target["clients"] == list(range(10)) and found["given"]["examples"] == 10
    assert found["given"]["sees"] == ["sum", "model"]
    assert found["score"]["recovered"] < 1, "ten examples hide each other"
    grouped = inferred(cell(attack="analytic", clients={"total": 12}, protocol={"secure_aggregation": {"groups": 3}}))
    assert len(grouped["targets"][0]["clients"]) == 4, "those in the sum with the first victim"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attack": "fed_mia", "protocol": {"secure_aggregation": "full"}}, "secure_aggregation: full hides it"),
        ({"attack": "nasr_active"}, "Set observer.server: malicious"),
        ({"attack": "property_inference(label=3)"}, "give the server some with server.root_data"),
    ],
)
def test_what_nobody_could_see_is_refused_with_the_reason(changes, reason):
    assert any(reason in line for line in cell(**changes).verdict.reasons)


def test_a_property_that_all_have_cannot_be_told():
    one = cell(
        attack="property_inference(label=3)", server={"root_data": 100}, clients={"total": 4},
        training={"rounds": 1, "batch_size": None},
    )  # fmt: skip
    assert "4 of 4 have it" in refusals([one], 0)[one.id]


def test_a_lost_update_is_seen_by_nobody():
    """Masks off, and six of ten clients fall silent: the server attacks those whose update arrived, and no other."""
    one = cell(attack="analytic", protocol={"dropout": {"rate": 0.6}}, observer={"victims": 10})
    record, _ = run_trial(one, 0, {})
    silent = Rng(0).child("dropout", 1).numpy().random(10) < 0.6
    attacked = {client for target in record["result"]["inference"]["targets"] for client in target["clients"]}
    assert attacked == set(np.flatnonzero(~silent).tolist()) and 0 < len(attacked) < 10


def test_a_sum_is_attacked_whoever_dropped_out_of_it():
    for seed in range(4):
        one = cell(
            attack="analytic", clients={"total": 12}, protocol={"secure_aggregation": "full", "dropout": {"rate": 0.3}}
        )
        silent = Rng(seed).child("dropout", 1).numpy().random(12) < 0.3
        found = inferred(one, seed)
        if silent.sum() <= 3:  # else too few survive
            assert found["targets"][0]["clients"] == np.flatnonzero(~silent).tolist()


def test_a_client_that_never_took_part_is_no_victim():
    one = cell(attack="fed_mia", clients={"total": 10, "per_round": 3}, observer={"victims": 10})
    rounds = [one.clients.choose(Rng(0).child("participation", r), r) for r in (1, 2, 3)]
    attacked = {client for target in inferred(one)["targets"] for client in target["clients"]}
    assert attacked == {client for present in rounds for client in present} != set(range(10))


def test_a_round_without_clients_is_refused_beforehand():
    one = cell(attack="analytic", clients={"total": 10, "per_round": 1, "sampling": "poisson"})
    empty = [s for s in range(20) if not one.clients.choose(Rng(s).child("participation", 1), 1)]
    assert "nobody takes part" in refusals([one], empty[0])[one.id]


def test_members_of_a_watched_round_are_those_of_its_batch():
    one = cell(
        attack="nasr_active",
        training={"algorithm": "fedsgd", "rounds": 2, "batch_size": 4},
        observer={"server": "malicious"},
    )
    assert all(target["members"] <= 4 for target in inferred(one)["targets"])


def test_what_the_noise_hides_is_not_told_to_the_attacker(monkeypatch):
    """Under record noise the public batch size, whatever was drawn; of a trusted server the expected clients and no size."""
    told = []
    monkeypatch.setattr(
        Reads,
        "claims",
        staticmethod(lambda view: (told.append(view.counts), Reconstruction(torch.zeros(view.count, 1, 8, 8)))[1]),
    )
    training = {"algorithm": "fedsgd", "rounds": 1, "batch_size": 5}
    record = cell(
        training=training,
        protocol={"privacy": {"kind": "record", "clip": 1, "noise_multiplier": 1, "sample_rate": 0.04}},
    )
    found = inferred(record.with_parts(inference=Reads()))
    assert set(told) == {(5,)} and len({target["images"] for target in found["targets"]}) > 1
    told.clear()
    central = cell(
        training={**training, "algorithm": "fedavg"},
        protocol={"privacy": {"kind": "client", "noise_multiplier": 1}},
        observer={"victims": 2},
    )
    inferred(central.with_parts(inference=Reads()))
    assert len(set(told[0])) == 1 and len(told[0]) == 10


def test_worker_momentum_is_undone():
    plain = inferred(cell(attack="labels_bias_corrected", training={**ONE_EXAMPLE["training"], "batch_size": 8}))
    heavy = inferred(
        cell(
            attack="labels_bias_corrected",
            training={**ONE_EXAMPLE["training"], "batch_size": 8, "worker_momentum": 0.9},
        )
    )
    assert heavy["score"] == plain["score"] and heavy["given"]["worker_momentum"] == 0.9


class Reads(InferenceAttack):
    """Returns whatever ``Reads.claims`` makes of its view."""

    name, goal = "reads", "reconstruction"
    needs = ONE_VECTOR
    claims = staticmethod(lambda view: None)

    def infer(self, view):
        return type(self).claims(view)


def test_the_view_holds_what_the_server_sees_and_no_more(monkeypatch):
    """Sent and seen by hand: the update of the victim, and the model before."""
    one = cell(attack="analytic")
    task = Workbench().task(one, 0)
    views = []
    monkeypatch.setattr(
        Reads, "claims", staticmethod(lambda view: (views.append(view), Reconstruction(torch.zeros(1, 1, 8, 8)))[1])
    )
    spy = one.with_parts(inference=Reads())
    found = inferred(spy)
    client, view = found["targets"][0]["clients"][0], views[0]
    setup = set_up(one, 0, task)
    model = task.initial_model(setup.rng.child("model"))
    assert torch.equal(view.model, model)
    expected = task.local_updates(model, [client], one.plan, Rng(0).child("round", 1), torch.empty(1, task.dim))
    # One client's training by itself rounds otherwise than among all, on some processors.
    assert torch.allclose(view.target, expected[0], rtol=1e-5, atol=1e-7)
    assert view.labels is None and view.candidates is None
    told = one.with_parts(
        inference=Reads(),
        config=one.config.model_copy(update={"observer": one.config.observer.model_copy(update={"labels": True})}),
    )
    inferred(told)
    assert view.party == "the server" and views[-1].labels is not None


def test_an_attack_that_returns_something_else_breaks_its_contract(monkeypatch):
    monkeypatch.setattr(Reads, "claims", staticmethod(lambda view: Membership(torch.zeros(3))))
    with pytest.raises(ContractError, match="a reconstruction attack returned Membership"):
        inferred(cell().with_parts(inference=Reads()))


class Tampers(InferenceAttack):
    """Sends zeros, and looks at what comes back."""

    name, goal, active = "tampers", "reconstruction", True
    needs = ONE_VECTOR

    def tamper(self, view):
        assert len(view.models) == 1
        return torch.zeros_like(view.models[0])

    def infer(self, view):
        assert not view.model.any(), "the model that was sent"
        return Reconstruction(torch.zeros(view.count, *view.shape))


def test_a_malicious_server_loses_the_round():
    one = cell(observer={"server": "malicious", "round": 2}).with_parts(inference=Tampers())
    record, _ = run_trial(one, 0, {})
    assert record["result"]["rounds"]["abandoned"] == 1
    assert record["result"]["inference"]["server"] == "malicious"
    assert record["threat_card"]["in_words"].startswith("A malicious server watches round 2")


def test_members_and_others_are_told_apart_by_the_core_alone():
    """Whoever claims the truth has an AUC of 1; the candidates are examples of the clients, and as many of the test set."""

    class Knows(InferenceAttack):
        name, goal, watches = "knows", "membership", "model"
        needs = (Sight.MODEL,)

        def infer(self, view):
            rows = {tuple(x.flatten().tolist()) for x in train.x}
            return Membership(torch.tensor([float(tuple(x.flatten().tolist()) in rows) for x in view.candidates.x]))

    one = cell(observer={"candidates": 150})
    task = Workbench().task(one, 0)
    train = Examples(torch.cat([part.x for part in task.parts]), torch.cat([part.y for part in task.parts]))
    found = inferred(one.with_parts(inference=Knows()))
    (target,) = found["targets"]
    assert (target["members"], target["non_members"]) == (150, 150)
    assert found["score"]["auc"] == pytest.approx(1.0, abs=0.02)  # digits has a few images twice


def test_members_and_others_have_the_same_classes():
    """A client with classes of its own is not told from the test set by these: who scores by class alone has an AUC of 0.5."""
    y = torch.tensor([0] * 30 + [1] * 10 + [2] * 50)
    members = Examples(torch.arange(90.0)[:, None], y)
    others = Examples(torch.arange(100.0, 220.0)[:, None], torch.arange(120) % 3)
    inside, outside = alike(members, others, 1000, Rng(0))
    assert inside.y.bincount().tolist() == [30, 10, 40] and outside.y.bincount().tolist() == [30, 10, 40]
    inside, outside = alike(Examples(members.x[:30].repeat(9, 1), members.y[:30].repeat(9)), others, 1000, Rng(0))
    assert (len(inside), len(outside)) == (90, 40)  # as many members more as there are in all
    few = Examples(members.x[25:40], members.y[25:40])
    inside, outside = alike(few, others, 1000, Rng(0))
    assert inside.y.bincount().tolist() == [5, 10] and outside.y.bincount().tolist() == [20, 40]
    assert len(set(outside.x.flatten().tolist())) == 60 and outside.x.min() >= 100
    assert [len(part) for part in alike(members, others, 7, Rng(0))] == [7, 7]


def test_a_class_alone_tells_no_membership():
    class ByClass(InferenceAttack):
        name, goal, watches = "by_class", "membership", "training"
        needs = ONE_VECTOR

        def infer(self, view):
            return Membership(-(view.candidates.y - 3.0).abs())

    skewed = cell(task={"partition": "dirichlet(alpha=0.3)"}, observer={"victims": 10})
    found = inferred(skewed.with_parts(inference=ByClass()))
    assert found["score"]["auc"] == pytest.approx(0.5, abs=0.02)


def test_shadow_models_learn_from_what_they_are_given_and_know_nothing_else():
    one = cell(training={"rounds": 20, "batch_size": 16, "lr": 0.2})
    task = Workbench().task(one, 0)
    initial = task.initial_model(Rng(0).child("model"))
    shadows = Shadows.like(task.network, initial, set_up(one, 0, task))
    models = shadows([task.parts[0], task.parts[1], task.parts[0][torch.arange(20)]], Rng(1))
    assert models.shape == (3, task.dim)
    for model, part in zip(models, (task.parts[0], task.parts[1], task.parts[0][torch.arange(20)]), strict=True):
        right = (task.network.logits(model, part.x).argmax(1) == part.y).double().mean()
        assert right > 0.9
    held = [value for value in vars(shadows).values() if isinstance(value, Examples)]
    assert not held


NOISY = {
    "record": {"privacy": {"kind": "record", "noise_multiplier": 200.0, "sample_rate": 0.1}},
    "levels": {"privacy": {"kind": "record", "sample_rate": 0.1, "levels": [
        {"noise_multiplier": 300.0}, {"noise_multiplier": 100.0, "clip": 2.0}]}},
    "client": {"privacy": {"kind": "client", "noise_multiplier": 200.0}},
    "distributed": {"secure_aggregation": "full", "privacy": {"kind": "distributed", "noise_multiplier": 20.0}},
}  # fmt: skip


@pytest.mark.parametrize("per_round", [10, 5])
@pytest.mark.parametrize("kind", NOISY)
def test_shadow_models_are_as_noisy_as_the_federation(kind, per_round):
    """The noise is so strong that it is all a model holds: the deviation of its coordinates is that of the noise of 9 rounds."""
    training = {"algorithm": "fedsgd", "rounds": 9, "batch_size": 8, "lr": 0.5}
    one = cell(training=training, protocol=NOISY[kind], clients={"total": 10, "per_round": per_round})
    task = Workbench().task(one, 0)
    setup = set_up(one, 0, task)
    initial = task.initial_model(Rng(0).child("model"))
    _, model = run_trial(one, 0, {})
    shadows = Shadows.like(task.network, initial, setup, setup.cell.noise.of_mean(setup.cell, task.dim))
    whole = Examples(torch.cat([part.x for part in task.parts]), torch.cat([part.y for part in task.parts]))
    for part in (whole, whole[torch.arange(700)]):
        (shadow,) = shadows([part], Rng(1))
        assert float((shadow - initial).std() / (model - initial).std()) == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize(("kind", "momentum"), [*((kind, 0.0) for kind in NOISY), ("client", 0.5)])
def test_an_attack_is_told_how_strong_the_noise_is_in_what_it_sees(kind, momentum):
    """Noise so strong that it is all there is: the deviation of the coordinates of what is seen is what the view says."""
    seen = []

    class Looks(InferenceAttack):
        name, goal, watches = "looks", "membership", "training"
        needs = (Sight.EACH_UPDATE | Sight.MODEL, Sight.SUM | Sight.MODEL)

        def infer(self, view):
            shown = view.updates[:, view.victim] if kind in ("record", "levels") else view.aggregates
            seen.append((noise_variance(view) ** 0.5, view.noise, float(shown[0].std())))
            return Membership(torch.zeros(len(view.candidates)))

    one = cell(
        training={"algorithm": "fedsgd", "rounds": 1, "batch_size": 8, "lr": 0.5, "worker_momentum": momentum},
        protocol=NOISY[kind], observer={"victims": 1},
    )  # fmt: skip
    inferred(one.with_parts(inference=Looks()))
    ((told, of_mean, shown),) = seen
    if kind == "levels":  # 300 and 100 x 2, by client: their mean square; FedSGD sends gradients themselves
        assert told == pytest.approx(((300**2 + 200**2) / 2) ** 0.5 / 8)
    else:
        assert told == pytest.approx(shown, rel=0.1)
    assert (of_mean == 0) == (kind in ("record", "levels"))


def test_the_examples_behind_a_final_model_are_those_of_all_clients():
    """Whether or not a client's update tells how many it holds: LiRA's shadow models are to see as many."""
    seen = []

    class Counts(InferenceAttack):
        name, goal, watches, needs = "counts", "membership", "model", (Sight.MODEL,)

        def infer(self, view):
            seen.append(view.count)
            return Membership(torch.zeros(len(view.candidates)))

    for protocol in ({}, NOISY["record"], NOISY["client"]):
        changes = {"protocol": protocol, "training": {"algorithm": "fedsgd", "rounds": 1, "batch_size": 14}}
        inferred(cell(**changes).with_parts(inference=Counts()))
    assert seen[0] == 1437
    assert seen[1] == pytest.approx(1437, rel=0.05) and seen[2] == pytest.approx(1437, rel=0.01)


SUITE = {
    "name": "mixed",
    "seeds": 1,
    **ONE_EXAMPLE,
    "clients": {"total": 10, "malicious": 2},
    "matrix": {
        "protocol.secure_aggregation": ["none", "full"],
        "attack": ["none", "ipm", "analytic", "fed_mia", "loss"],
        "defense": ["mean", "median"],
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("runs"), jobs=1)


def test_a_matrix_of_poisoning_masks_and_inference(run):
    rows = run.rows()
    assert {row["status"] for row in rows} == {"ok", "refused"}
    ok = {(row["protocol.secure_aggregation"], row["attack"], row["defense"]) for row in rows if row["status"] == "ok"}
    assert ("none", "fed_mia", "median") in ok and ("full", "analytic", "mean") in ok
    assert ("full", "fed_mia", "mean") not in ok and ("full", "ipm", "median") not in ok
    assert all(row["reason"] for row in rows if row["status"] == "refused")
    shown = str(run.table("recovered"))
    assert "analytic" in shown and "ipm" not in shown
    assert "analytic" not in str(run.table()), "the accuracy says nothing of an attack that leaves the training alone"
    gain = {
        (r["protocol.secure_aggregation"], r["seed"]): r["psnr_gain"]
        for r in rows
        if r["attack"] == "analytic" and r["defense"] == "mean"
    }
    assert gain["none", 0] > 50 > gain["full", 0]


def test_reconstructions_lie_beside_the_records(run):
    row = next(row for row in run.rows() if row["attack"] == "analytic" and row["status"] == "ok")
    record = run.records[row["cell"], row["seed"]]
    stem = run.folder.path / "artifacts" / f"{row['cell']}-seed-{row['seed']:03d}-target-0"
    truth, found = load(stem.with_name(stem.name + ".npz"))
    psnr = -10 * np.log10(max(1e-30, float(((truth[0] - found[0]) ** 2).mean())))
    assert min(150, psnr) == pytest.approx(record["result"]["inference"]["targets"][0]["psnr"]["values"][0], rel=0.05)
    assert stem.with_name(stem.name + ".png").read_bytes().startswith(b"\x89PNG")
    assert json.dumps(record["result"]["inference"])


def test_the_settings_of_an_observer_are_part_of_its_cells_alone():
    assert "observer" not in cell().canonical
    assert cell(observer={"round": 2}).id == cell().id
    assert cell(attack="analytic", observer={"round": 2}).id != cell(attack="analytic").id
