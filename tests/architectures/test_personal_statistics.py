"""Statistics, and whole normalizing layers, that each client keeps for itself: SiloBN and FedBN beside plain loops."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.errors import ConfigError
from fedguard.tasks.cohort import schedule
from fedguard.tasks.statistics import join_single
from tests.architectures.test_running_statistics import cell, refusal, reports

NORMS = 1, 6
#: Four clients of which two or three train in a round, so that statistics outlive rounds without their client
PARTLY = {
    "clients": {"total": 5, "per_round": 3},
    "training": {"rounds": 4, "local_epochs": 2, "batch_size": 16, "lr": 0.1},
}


def algorithm(name, fate=None, **changes):
    training = {**PARTLY["training"], "algorithm": name}
    return reports(fate, **{**PARTLY, "training": training, "defense": "mean", **changes})


def plain_loop(setup, found, keeps):
    """Each client has a state dict; all entries but those that it keeps are the mean of the clients of the round."""
    task = setup.task
    module, model = copy.deepcopy(task.module).train(), task.initial_model(setup.rng.child("model"))
    nn.utils.vector_to_parameters(model, module.parameters())
    for layer in NORMS:
        module[layer].reset_running_stats()
    shared, own = copy.deepcopy(module.state_dict()), {}
    for number, report in enumerate(found, 1):
        sent = []
        assert len(report.clients) == 3
        for client in report.clients:
            part = task.parts[client]
            module.load_state_dict({**shared, **own.get(client, {})})
            sgd = torch.optim.SGD(module.parameters(), lr=0.1)
            draw = setup.rng.child("round", number).child("client", client).numpy()
            for batch in join_single(schedule(setup.local_plan, len(part), draw), "small"):
                rows = torch.from_numpy(batch[batch >= 0])
                sgd.zero_grad()
                nn.functional.cross_entropy(module(part.x[rows]), part.y[rows]).backward()
                sgd.step()
            state = copy.deepcopy(module.state_dict())
            own[client] = {name: one for name, one in state.items() if keeps(name)}
            sent.append(state)
        shared = {
            name: one if keeps(name) or "num_batches" in name else sum(state[name] for state in sent) / len(sent)
            for name, one in shared.items()
        }
    test, accuracies, everywhere = task.dataset.test, [], []
    for client, part in enumerate(task.parts):
        module.load_state_dict({**shared, **own.get(client, {})})
        with torch.no_grad():
            right = module.eval()(test.x).argmax(1) == test.y
        total = weight = 0.0
        for label in range(10):
            share, of_label = float((part.y == label).double().mean()), test.y == label
            if of_label.any():
                total, weight = total + share * float(right[of_label].double().mean()), weight + share
        accuracies.append(total / weight)
        everywhere.append(float(right.double().mean()))
        module.train()
    return shared, own, accuracies, everywhere


def statistic(name):
    return "running" in name


def normalizing(name):
    return name.split(".")[0] in map(str, NORMS)


@pytest.mark.parametrize(("name", "fate", "keeps"), [("fedavg", "local", statistic), ("fedbn", None, normalizing)])
def test_each_client_s_own_part_equals_a_plain_loop(name, fate, keeps):
    setup, found = algorithm(name, fate)
    shared, own, accuracies, everywhere = plain_loop(setup, found, keeps)
    names = [name for name, _ in setup.task.module.named_parameters()]
    assert torch.allclose(found[-1].model, torch.cat([shared[name].flatten() for name in names]), atol=1e-6)
    for client, row in enumerate(found[-1].statistics):
        state = {**shared, **own.get(client, {})}
        wanted = [state[f"{layer}.running_{what}"] for layer in NORMS for what in ("mean", "var")]
        assert torch.allclose(row, torch.cat(wanted), atol=1e-6)
    assert 1 < len(own) < 6 and len(found[-1].statistics) == 5
    evaluation = found[-1].evaluation
    assert evaluation.accuracy == pytest.approx(sum(accuracies) / 5, abs=1e-9)
    assert evaluation.worst == pytest.approx(min(accuracies), abs=1e-9)
    assert evaluation.elsewhere == pytest.approx(sum(everywhere) / 5, abs=1e-9)


def test_weights_of_normalizing_layers_move_for_silobn_and_not_for_fedbn():
    """The two are one word apart, and papers confuse them."""
    moved = {}
    for name, fate in (("fedavg", "local"), ("fedbn", None)):
        setup, found = algorithm(name, fate)
        first = setup.task.initial_model(setup.rng.child("model"))
        place, moved[name] = 0, {}
        for part, parameter in setup.task.module.named_parameters():
            end = place + parameter.numel()
            moved[name][part] = not torch.equal(found[-1].model[place:end], first[place:end])
            place = end
    assert all(moved["fedavg"].values())
    assert {part for part, one in moved["fedbn"].items() if not one} == {
        f"{n}.{w}" for n in NORMS for w in ("weight", "bias")
    }


def test_malicious_clients_are_no_client_at_which_it_is_evaluated():
    setup, found = algorithm("fedavg", "local", clients={"total": 5, "malicious": 2}, attack="sign_flip")
    task, last = setup.task, found[-1]
    honest = [client for client in range(5) if client not in setup.malicious]
    everywhere = [task.evaluate(last.model, last.statistics[client]).accuracy for client in honest]
    assert last.evaluation.elsewhere == pytest.approx(sum(everywhere) / 3)


def test_a_record_has_the_accuracy_elsewhere_and_the_worst_client():
    made = cell(attack="backdoor", clients={"total": 4, "malicious": 1}, training={"statistics": "local"})
    record, _ = run_trial(made, 0, {}, Workbench())
    found = record["result"]["statistics"]
    assert (found["fate"], found["rule"]) == ("local", None)
    assert 0 <= found["worst"] <= record["result"]["curve"]["accuracy"][-1] and 0 <= found["elsewhere"] <= 1
    assert 0 <= record["result"]["attack_success_raw"] <= 1


def test_what_works_on_one_model_is_refused():
    evasion = {"evaluation": {"evasion": "pgd"}}
    assert "there is one for each client" in refusal(training={"statistics": "local"}, **evasion)
    assert "all_reduce carries updates alone" in refusal(training={"statistics": "local"}, architecture="all_reduce")
    bad = cell(training={"algorithm": "fedbn", "statistics": "weighted"})
    assert any("takes their running statistics from them" in reason for reason in bad.verdict.reasons)


def test_fedbn_without_a_normalizing_layer_is_refused():
    made = cell(task={"model": "mlp"}, training={"algorithm": "fedbn"})
    with pytest.raises(ConfigError, match="got 0 normalizing layers"):
        run_trial(made, 0, {}, Workbench())
    assert "got 0 normalizing layers" in refusals([made], 0)[made.id]


def test_the_usual_fate_of_fedbn_is_local_and_no_part_of_its_identity():
    usual, named = (cell(training={"algorithm": "fedbn", **more}) for more in ({}, {"statistics": "local"}))
    assert usual.id == named.id and usual.statistics.name == "local"
    assert cell(training={"algorithm": "fedavg", "statistics": "local"}).id != cell().id
