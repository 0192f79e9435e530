"""Attacks on privacy in simulated time: the view has the victim's own update, as it was sent, and the model that it began with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import ONE_VECTOR, InferenceAttack, Observer, Reconstruction, Sight
from fedguard.registry import load_registry
from fedguard.rng import Rng

#: Devices of very different speeds, so that a fast one is in an aggregate of a round more than once, and a slow one is stale
PACES = {"compute": {"seconds": 1, "spread": 1.0, "jitter": 0.2}}
TRAINING = {"algorithm": "fedavg", "rounds": 4, "batch_size": 3, "local_steps": 2, "lr": 0.5}
SINGLE = (
    "fedasync(alpha=0.3)",
    "fedbuff(buffer=3)",
    "parameter_server",
    "parameter_server(consistency='eventual')",
    "parameter_server(consistency='bounded', tau=2)",
    "google(over=1.4)",
    "decaf(deadline=40)",
)


def cell(architecture, **changes):
    base = {
        "architecture": architecture, "clients": {"total": 9, "per_round": 5}, "training": TRAINING, "network": PACES,
        "observer": {"round": 3, "victims": 5}, "attack": "analytic",
    }  # fmt: skip
    return build_cell(CellConfig.model_validate({**base, **changes}), load_registry())


class Keeps(InferenceAttack):
    """Keeps its views."""

    name, goal = "keeps", "reconstruction"
    needs = ONE_VECTOR

    def infer(self, view):
        self.views.append(view)
        return Reconstruction(torch.zeros(max(view.count, 1), *view.shape))


class KeepsAll(Keeps):
    name, watches = "keeps_all", "training"


def attack(made, kind=Keeps, seed=1):
    """The cell under an attack that keeps its views; with the trial's result and the truth of each target."""
    spy, truth = kind(), {}
    object.__setattr__(spy, "views", [])
    record, _ = run_trial(
        made.with_parts(inference=spy), seed, {}, album=lambda name, claim, used: truth.update({name: used})
    )
    return spy.views, record["result"]["inference"], list(truth.values())


def arrived(made, seed=1):
    """Every training with an update that arrives: its round, client, turn and share, by an observer of the whole training."""
    setup = replace(set_up(made, seed, Workbench().task(made, seed)), observer=Observer(None))
    found = []
    for report in made.architecture.aggregates(setup):
        (one,) = report.watched
        keys = sorted(one.sent.trainings, key=lambda training: training.key)
        found += [(report.round, training) for training in keys if training.client in one.sent.senders]
    return found


def trained(made, task, start, training, seed=1):
    """float32 ``[d]``: a client's update by the task alone, from this model."""
    plan = replace(made.plan, shares={training.client: training.share})
    rng = Rng(seed).child("round", training.turn)
    return task.local_updates(start, [training.client], plan, rng, torch.empty(1, task.dim))[0]


@pytest.mark.parametrize("architecture", SINGLE)
def test_the_server_has_the_first_update_of_the_round_as_it_was_sent(architecture):
    made = cell(architecture, **everybody(architecture))
    task = Workbench().task(made, 1)
    views, found, truth = attack(made)
    first = {}
    for round, training in arrived(made):
        if round == 3:
            first.setdefault(training.client, training)
    assert {target["clients"][0] for target in found["targets"]} <= set(first) and found["targets"]
    for view, target, used in zip(views, found["targets"], truth, strict=True):
        training = first[target["clients"][0]]
        assert torch.equal(view.model, training.start)
        assert torch.allclose(view.target, trained(made, task, training.start, training), rtol=1e-4, atol=2e-6)
        rng, plan = Rng(1).child("round", training.turn), replace(made.plan, shares={training.client: training.share})
        assert torch.equal(used.x, task.examples_used(training.client, plan, rng).x)
    assert found["given"]["vector"] == "one client's update"


def everybody(architecture):
    return {"clients": {"total": 9}} if "bounded" in architecture else {}


@pytest.mark.parametrize("architecture", ["fedasync(alpha=0.3)", "fedbuff(buffer=3)"])
def test_updates_are_stale_and_repeated_in_these_tests(architecture):
    """Otherwise the test above could not see a wrong model, a wrong factor or a wrong turn."""
    found = arrived(cell(architecture))
    assert any(training.staleness > 1 for round, training in found if round == 3)
    assert any(training.turn != round for round, training in found if round == 3)
    clients = [training.client for round, training in found if round == 3]
    assert len(set(clients)) < len(clients) or architecture.startswith("fedbuff")


@pytest.mark.parametrize("architecture", ["fedasync(alpha=0.3)", "fedbuff(buffer=4)"])
def test_an_attack_on_the_whole_training_has_each_update_of_its_victim(architecture):
    made = cell(architecture)
    task = Workbench().task(made, 1)
    views, found, _ = attack(made, KeepsAll)
    every = [training for _, training in arrived(made)]
    for view, target in zip(views, found["targets"], strict=True):
        own = [training for training in every if training.client == target["clients"][0]]
        assert len(view.updates) == len(view.models) - 1 == len(own) > 0
        for model, update, training in zip(view.models, view.updates[:, view.victim], own, strict=False):
            assert torch.equal(model, training.start)
            assert torch.allclose(update, trained(made, task, model, training), rtol=1e-4, atol=2e-6)
    assert max(len(view.updates) for view in views) > 1


def test_of_two_updates_in_one_aggregate_it_watches_the_first():
    made = cell(
        "fedbuff(buffer=9)", network={"compute": {"seconds": 1, "spread": 2.0}}, observer={"round": 2, "victims": 9}
    )
    (views, found, _), task = attack(made), Workbench().task(made, 1)
    turns = {}
    for round, training in arrived(made):
        if round == 2:
            turns.setdefault(training.client, []).append(training)
    assert max(map(len, turns.values())) > 1
    for view, target in zip(views, found["targets"], strict=True):
        first = turns[target["clients"][0]][0]
        assert torch.allclose(view.target, trained(made, task, first.start, first), rtol=1e-4, atol=2e-6)


def test_an_exact_attack_recovers_what_a_stale_client_trained_on():
    made = cell("fedbuff(buffer=3)", training={**TRAINING, "batch_size": 1, "local_steps": 1})
    record, _ = run_trial(made, 1, {})
    assert record["result"]["inference"]["score"]["recovered"] == 1.0
    assert "simulated" in str(record["threat_card"]) or record["result"]["inference"]["given"]["round"] == 3


@pytest.mark.parametrize("architecture", ["mapreduce(combiners=2)", "fate"])
def test_of_sums_it_has_a_sum_with_its_victims(architecture):
    """Of combiners the mean of one group, and of the arbiter the mean of all: by the task alone, up to fixed point."""
    made = cell(architecture, clients={"total": 6, "per_round": 5})
    task = Workbench().task(made, 1)
    views, found, _ = attack(made)
    (view,), (target,) = views, found["targets"]
    assert len(target["clients"]) in ((2, 3) if "mapreduce" in architecture else (5,))
    there = [
        training for round, training in arrived_of_sums(made) if round == 3 and training.client in target["clients"]
    ]
    assert len(there) == len(target["clients"])
    means = torch.stack([trained(made, task, view.model, training) for training in there]).mean(0)
    assert torch.allclose(view.target, means, atol=2e-4) and view.target.abs().max() > 0.01
    assert found["given"]["sees"] == Sight.names(Sight.SUM | Sight.MODEL)


def arrived_of_sums(made, seed=1):
    setup = replace(set_up(made, seed, Workbench().task(made, seed)), observer=Observer(None))
    return [
        (report.round, training) for report in made.architecture.run(setup) for one in report.watched
        for training in one.sent.trainings
    ]  # fmt: skip


def test_in_masked_rounds_with_a_deadline_it_has_the_sum_of_those_in_time():
    made = cell("google(over=1.4, window=1000)", protocol={"secure_aggregation": "full"})
    views, found, _ = attack(made)
    (target,), (view,) = found["targets"], views
    there = {training.client for round, training in arrived_of_sums(made) if round == 3}
    assert set(target["clients"]) == there and len(there) == 5
    task = Workbench().task(made, 1)
    mean = torch.stack(
        [trained(made, task, view.model, one) for round, one in arrived_of_sums(made) if round == 3]
    ).mean(0)
    assert torch.allclose(view.target, mean, atol=1e-3)


def test_a_trusted_server_shows_the_steps_of_its_model_alone():
    private = {"privacy": {"kind": "client", "noise_multiplier": 0.5, "delta": 1e-3}}
    made = cell("fedbuff(buffer=3)", protocol=private)
    (view,), found, _ = attack(made)
    assert found["given"]["vector"] == "the noisy step of the published model" and view.noise > 0
    assert len(view.counts) == 3
    with pytest.raises(Exception, match="sight|sees"):
        view.updates  # noqa: B018


def test_a_malicious_server_sends_its_model_in_a_round_that_all_begin_together():
    class Tampers(Keeps):
        name, active = "tampers", True

        def tamper(self, view):
            return torch.full_like(view.models[0], 0.01)

    made = cell("google(over=1.4)", observer={"server": "malicious", "round": 3, "victims": 2})
    views, found, _ = attack(made, Tampers)
    assert found["server"] == "malicious" and len(views) == 2
    assert all(torch.equal(view.model, torch.full_like(view.model, 0.01)) for view in views)


@pytest.mark.parametrize("failing", ["", ", aggregators=3, aggregator_fails=0.4, least=0.2"])
def test_whoever_does_not_arrive_is_no_target(failing):
    """Before anything is trained: the round's arrivals are those of the simulation, and what failing servers leave of them."""
    made = cell(f"google(over=1.8{failing})")
    setup, found = set_up(made, 1, Workbench().task(made, 1)), arrived(made)
    sizes = []
    for number in range(1, 5):
        planned = made.architecture.participants(setup, range(number, number + 1))
        assert {one.client for one in planned} == {one.client for round, one in found if round == number}
        sizes.append(len(planned))
    assert (min(sizes) < 5) == bool(failing)
    assert refusals([made], 1) == {}


def test_the_training_is_left_as_it_is():
    made = cell("fedasync(alpha=0.3)")
    clean = run_trial(cell("fedasync(alpha=0.3)", attack="none", observer={}), 1, {})[1]
    assert torch.equal(run_trial(made, 1, {})[1], clean)


def test_participants_of_rounds_come_once():
    made = cell("fedasync(alpha=0.3)")
    setup = set_up(made, 1, Workbench().task(made, 1))
    clients = [one.client for one in made.architecture.participants(setup, range(1, 5))]
    assert len(set(clients)) == len(clients) > 5
    assert all(one.turn == 1 for one in made.architecture.participants(setup, range(1, 5)))
    assert any(one.turn > 1 for one in made.architecture.participants(setup, range(4, 5)))
