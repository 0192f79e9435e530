"""Where all devices are equally fast, every system around a server is the server: the same models, to the last bit."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch

from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.contracts import Fate
from tests.systems.scenes import cell, models, off, scene

#: What a system equals where it is given all of a round.
EXACT = (
    "parameter_server",
    "parameter_server(ranges=3)",
    "parameter_server(ranges=7)",
    "google(over=1.0, least=0.5)",
    "mapreduce(combiners=1)",
)
BUFFER = "fedbuff(buffer=6)"
BOUNDED = "parameter_server(consistency='bounded', tau=0)"
#: Six updates of n added up one by one are those added up at once, but for rounding.
ROUNDING = 1e-5

SETTINGS = {
    "plain": {},
    "momentum": {"training": {"momentum": 0.9}},
    "worker momentum": {"training": {"worker_momentum": 0.5}},
    "fedprox": {"training": {"algorithm": "fedprox", "mu": 0.1}},
    "unlike clients": {"task": {"partition": {"kind": "dirichlet", "alpha": 0.3}}},
}
#: Where the six are no longer all of a round, or the server remembers the one before.
OF_A_ROUND = {
    "dropout": {"protocol": {"dropout": {"rate": 0.2}}},
    "server momentum": {"training": {"server_momentum": 0.5}},
    "adam": {"training": {"server_optimizer": {"name": "adam"}}},
}
OF_SOME = {
    "half of them": {"clients": {"per_round": 3}},
    "a schedule": {"clients": {"schedule": [{"clients": 2, "joins": 2}, {"clients": 1, "leaves": 4}]}},
}


@cache
def server(settings: str) -> torch.Tensor:
    """The server's models, once for all systems that are held beside it; settings as JSON."""
    return models(**json.loads(settings))


def same(system, **settings) -> bool:
    return torch.equal(models(system, **settings), server(json.dumps(settings)))


@pytest.mark.parametrize("settings", [*SETTINGS, *OF_A_ROUND, *OF_SOME])
@pytest.mark.parametrize("system", EXACT)
def test_it_is_the_server(system, settings):
    assert same(system, **(SETTINGS | OF_A_ROUND | OF_SOME)[settings])


@pytest.mark.parametrize("settings", [*SETTINGS, *OF_A_ROUND])
def test_a_buffer_of_all_is_the_server(settings):
    assert same(BUFFER, **(SETTINGS | OF_A_ROUND)[settings])


@pytest.mark.parametrize("settings", SETTINGS)
def test_bounded_delay_of_zero_is_the_server_but_for_rounding(settings):
    assert off(models(BOUNDED, **SETTINGS[settings]), models(**SETTINGS[settings])) < ROUNDING


def test_bounded_delay_of_zero_is_the_server_with_a_straggler_too():
    slow = {"compute": {"seconds": 0.01, "slow": {"share": 0.2, "factor": 9}, "jitter": 0.3}, "link": {"latency": 1}}
    assert off(models(BOUNDED, network=slow), models()) < ROUNDING


@pytest.mark.parametrize("selected", ["selection=10", "selection=10, check_ins=100"])
def test_a_selection_of_all_is_the_server(selected):
    assert same(f"google(over=1.0, least=1.0, {selected})")


@pytest.mark.parametrize("system", ["parameter_server", "parameter_server(ranges=3)", "mapreduce(combiners=1)"])
def test_poisson_sampling_is_the_servers_with_rounds_of_all_sizes(system):
    assert same(system, clients={"total": 8, "per_round": 0.25, "sampling": "poisson"}, training={"rounds": 8})


@pytest.mark.parametrize("system", EXACT[:-1])
@pytest.mark.parametrize("defense", ["trimmed_mean", "median"])
def test_rules_by_coordinate_do_not_know_ranges(system, defense):
    assert same(system, defense=defense, clients={"assumed_f": 1})


@pytest.mark.parametrize("system", ["parameter_server", "google(over=1.0)", BUFFER])
@pytest.mark.parametrize("defense", ["krum", "nnm >> trimmed_mean", "centered_clipping"])
@pytest.mark.parametrize("attack", ["ipm", "alie", "label_flip"])
def test_attacks_and_rules_are_the_servers(system, defense, attack):
    """The malicious rows are crafted from the same honest ones, and the rule remembers the same."""
    assert same(system, defense=defense, attack=attack, clients={"malicious": 2})


def test_as_many_combiners_as_clients_show_each_update():
    """Their means are the updates in another order."""
    settings = {"defense": "krum", "clients": {"assumed_f": 1}}
    assert same("mapreduce(combiners=6)", **settings)
    assert off(models("mapreduce(combiners=6)"), models()) < ROUNDING
    assert off(models("mapreduce(combiners=5)", **settings), models(**settings)) > 0.01


# In float64 nothing is left of the rounding, where six updates are added up one by one either.


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def models_in_float64(system="server", **settings):
    made = cell(system, **{**settings, "training": {**settings.get("training", {}), "dtype": "float64"}})
    task = Workbench().task(made, 0)  # of its own: no other test gets a network of float64
    setup = set_up(made, 0, task)
    start = setup.task.initial_model(setup.rng.child("model"))
    return torch.stack([start, *(report.model.clone() for report in made.architecture.run(setup))])


@pytest.mark.parametrize("settings", ["momentum", "fedprox", "dropout"])
def test_in_float64_they_agree_to_the_last_digits(settings, float64):
    """Within 1e-12 of the way moved. Under bounded delay each push counts by itself, also where others drop out."""
    given = (SETTINGS | OF_A_ROUND)[settings]
    server = models_in_float64(**given)
    assert server.dtype == torch.float64 and float((server[-1] - server[0]).norm()) > 0.1
    for system in (*EXACT, BUFFER, *([BOUNDED] if settings in SETTINGS else [])):
        assert off(models_in_float64(system, **given), server) < 1e-12, system


# A test that cannot fail is no test: with one thing wrong, none of them is the server any more.


@pytest.fixture(params=["another batch", "an update twice as long", "an old model", "one left out"])
def fault(request, monkeypatch):
    """One thing that goes wrong in simulated time and not in the server."""
    from fedguard.architectures.systems import event_run
    from fedguard.architectures.systems.trainings import LocalTrainings

    begin, ended = LocalTrainings.begin, LocalTrainings.collect_updates
    if request.param == "another batch":

        def another(self, *given):
            begun(self, *given)
            train = self.clients.train_honest
            self.clients.train_honest = lambda model, round, *more: train(model, [one + 1 for one in round], *more)

        begun = event_run.EventRun.__init__
        monkeypatch.setattr(event_run.EventRun, "__init__", another)
    if request.param == "an update twice as long":

        def longer(self, keys, apart, rows):
            ended(self, keys, apart, rows)
            rows[0] *= 2

        monkeypatch.setattr(LocalTrainings, "collect_updates", longer)
    if request.param == "an old model":
        kept = []

        def stale(self, begun, model):
            kept.append(model)
            begin(self, begun, kept[-2:][0])

        monkeypatch.setattr(LocalTrainings, "begin", stale)
    if request.param == "one left out":
        train = event_run.EventRun.train
        monkeypatch.setattr(event_run.EventRun, "train", lambda *given: train(*given).without({0}))


@pytest.mark.parametrize("system", [*EXACT, BUFFER, BOUNDED])
def test_a_fault_is_seen(system, fault):
    assert off(models(system), models()) > 10 * ROUNDING


def test_what_is_switched_off_is_no_part_of_a_cell():
    """Parameters that came later leave the identity of older cells as it was."""
    assert cell("google").canonical["architecture"] == {"name": "google", "over": 1.3, "window": 120.0, "least": 0.8}
    assert cell("google").id == cell({"name": "google", "selection": None}).id != cell("google(selection=9)").id
    assert cell("mapreduce").canonical["architecture"] == {"name": "mapreduce", "combiners": 5}


# What is carried from one round to the next.

STEPS = {"local_steps": 3, "batch_size": 16}
CARRYING = {
    "plain": {},
    "half of them": {"clients": {"per_round": 3}},
    "unlike clients": {"task": {"partition": {"kind": "dirichlet", "alpha": 0.3}}},
    "dropout": {"protocol": {"dropout": {"rate": 0.3}}},
    "under attack": {"defense": "trimmed_mean", "attack": "sign_flip", "clients": {"malicious": 1}},
}


@pytest.mark.parametrize("settings", CARRYING)
@pytest.mark.parametrize("algorithm", ["scaffold", "fednova", "feddyn"])
@pytest.mark.parametrize("system", ["parameter_server(ranges=3)", "google(over=1.0, least=0.5)"])
def test_algorithms_that_carry_more_than_updates_are_those_of_the_server(system, algorithm, settings):
    assert same(system, training={"algorithm": algorithm, **STEPS}, **CARRYING[settings])


def test_layers_that_stay_with_clients_are_those_of_the_server():
    personal = {"training": {"algorithm": "fedper", **STEPS}, "task": {"model": "mlp"}}
    assert same("parameter_server", **personal) and same("google(over=1.0, least=0.5)", **personal)


def test_what_the_late_would_carry_on_does_not_count():
    """SCAFFOLD as a loop over those whose updates have arrived: nobody else's variate moves, nor the server's for them."""
    lr, steps = 0.1, STEPS["local_steps"]
    network = {"compute": {"seconds": 0.01, "jitter": 0.5}}
    training = {"algorithm": "scaffold", **STEPS, "lr": lr, "rounds": 5}
    made, setup = scene("google(over=1.5, least=0.5, window=100)", network=network, training=training, clients={"total": 8, "per_round": 4})  # fmt: skip
    model = setup.task.initial_model(setup.rng.child("model"))
    server_variate, own = torch.zeros(setup.task.dim), torch.zeros(8, setup.task.dim)
    for one in made.architecture.run(setup):
        arrived = sorted(one.clients)
        assert len(arrived) == 4 and one.of_fate(Fate.LATE)
        rows = torch.empty(4, setup.task.dim)
        plan = replace(setup.local_plan, corrections={client: server_variate - own[client] for client in arrived})
        setup.task.local_updates(model, arrived, plan, setup.rng.child("round", one.round), rows)
        moved = [own[client] - server_variate - row / (steps * lr) for client, row in zip(arrived, rows, strict=True)]
        change = sum(new - own[client] for client, new in zip(arrived, moved, strict=True)) / 8
        model, server_variate = model + rows.mean(0), server_variate + change
        own[arrived] = torch.stack(moved)
        assert torch.allclose(one.model, model, atol=1e-5)


@pytest.mark.parametrize("system", ["parameter_server(consistency='eventual')", "fedbuff", "mapreduce", "basgd"])
def test_where_rounds_are_not_those_of_the_server_they_are_refused(system):
    (reason,) = cell(system, training={"algorithm": "scaffold", **STEPS}).verdict.reasons
    assert "carries more than updates from one round to the next" in reason
