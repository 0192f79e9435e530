"""A client whose budget of trainings is spent takes no more part, so that its epsilon is known before the run."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice

import pytest
import torch

from fedguard.contracts import Network, Speeds
from fedguard.errors import PreconditionError, StalledError
from fedguard.simulated.barriers import asp, buffer_barrier
from fedguard.simulated.course import ServerSimulation
from tests.simulated.scenes import Rng, world
from tests.systems.scenes import cell, models, scene
from tests.systems.test_asynchronous import UNEVEN
from tests.systems.test_privacy_in_time import DELTA, EVENTUAL, OWN, C, exact, trained

BOUNDED = "parameter_server(consistency='bounded', tau=2)"
ALONE = ("fedbuff(buffer=4)", "fedasync(alpha=0.5)", "basgd(buffers=3)", EVENTUAL, BOUNDED)
ROUNDS, CLIENTS = 5, 6


def begun(system, **clients):
    """How many trainings each client began, and how many of its updates arrived."""
    made, setup = scene(system, 1, clients={"total": CLIENTS, **clients}, network=UNEVEN, training={"rounds": ROUNDS})
    reports = list(made.architecture.run(setup))
    return Counter(one for report in reports for one in report.chosen), sum(len(report.clients) for report in reports)


@pytest.mark.parametrize("system", ALONE)
def test_nobody_begins_more_and_the_others_go_on(system):
    freely, _ = begun(system)
    most = {"basgd(buffers=3)": 50, BOUNDED: 6}.get(system, 8)  # the slowest fill one buffer of basgd
    counted, arrived = begun(system, most_trainings=most)
    assert max(counted.values()) == most and arrived >= ROUNDS * CLIENTS
    assert max(freely.values()) > most or system == BOUNDED  # which bounds it by itself


def test_places_of_those_who_have_stopped_go_to_others():
    """Two of five at work, three trainings each: fifteen in all, each device its three, and then nothing more."""
    course = ServerSimulation(
        world(Network(compute=Speeds(seconds=1.0)), 5), asp(), 5, lambda round: (0, 1), Rng(3), most=3
    )
    with pytest.raises(StalledError, match="nobody computes or sends any more"):
        for number, release in enumerate(course.releases(), 1):
            assert number <= 15 and len(release.arrivals) == 1
    assert course.events > 0 and number == 15


def test_a_quick_device_stops_first_and_slow_ones_do_the_rest():
    found = Counter()
    times = Network(compute=Speeds(seconds=1.0, spread=1.0))
    course = ServerSimulation(world(times, 3), buffer_barrier(2), 3, lambda round: (0, 1, 2), Rng(0), most=4)
    for release in islice(course.releases(), 6):
        found.update(one.client for one in release.arrivals)
    assert found == {0: 4, 1: 4, 2: 4}


@pytest.mark.parametrize("system", ALONE)
def test_a_budget_that_nobody_reaches_changes_nothing(system):
    assert torch.equal(models(system, network=UNEVEN), models(system, network=UNEVEN, clients={"most_trainings": 1000}))


def test_a_cell_without_it_is_what_it_was():
    assert "most_trainings" not in cell("fedbuff").canonical["clients"]
    one, other = (cell("fedbuff", clients={"most_trainings": most}) for most in (8, 9))
    assert one.canonical["clients"]["most_trainings"] == 8 and one.id != other.id


@pytest.mark.parametrize(
    ("system", "in_one"), [("fedbuff(buffer=4)", 4), ("fedbuff(buffer=30)", 7), ("fedasync", 1), (EVENTUAL, 1)]
)
def test_the_noise_at_a_server_keeps_the_epsilon_that_is_asked_for(system, in_one):
    """k updates of a client, j of them in one sum at most, move all sums by sqrt(j k) clips together at most."""
    target = 8.0
    noise = {"protocol": {"privacy": {"kind": "client", "clip": C, "epsilon": target, "delta": DELTA}}}
    settings = {
        "clients": {"total": CLIENTS, "most_trainings": 7},
        "network": UNEVEN,
        "training": {"rounds": 1 if "30" in system else ROUNDS},
    }
    _, _, _, found = trained(system, **noise, **settings)
    z = found["noise_multiplier"]
    assert exact(math.sqrt(7 * in_one) / z) == pytest.approx(target, abs=0.05)
    assert 0 < found["epsilon"] <= target and found["ledger"]["releases"]["most"] <= 7


@pytest.mark.parametrize("system", ["fedbuff(buffer=4)", "fedasync", "basgd(buffers=3)", EVENTUAL])
def test_noise_in_the_clients_keeps_it_too(system):
    """Who has begun all that it may has spent it all, and not more."""
    noise = {"protocol": {"privacy": {**OWN, "epsilon": 3.0}}}
    settings = {"clients": {"total": CLIENTS, "most_trainings": 7}, "network": UNEVEN}
    steps = {"training": {"rounds": ROUNDS, "local_epochs": None, "local_steps": 2}}
    _, _, _, found = trained(system, **noise, **settings, **steps)
    assert found["ledger"]["releases"]["most"] == 7
    assert 2.9 < found["epsilon"] <= 3.0


@pytest.mark.parametrize(
    ("system", "clients", "why"),
    [
        ("server", {"most_trainings": 9}, "under server rounds say who trains"),
        ("google", {"most_trainings": 9}, "under google rounds say who trains"),
        ("parameter_server", {"most_trainings": 9}, "under parameter_server rounds say who trains"),
        (
            "fedbuff(buffer=4)",
            {"most_trainings": 3},
            "asks for 24 updates, and 6 clients begin 3 trainings each at most",
        ),
    ],
)
def test_where_it_says_nothing_or_too_little_it_is_refused(system, clients, why):
    (reason,) = cell(system, clients=clients).verdict.reasons
    assert why in reason and "ower training.rounds" in reason and "\n" not in reason


def test_updates_that_are_lost_are_missing_in_the_end():
    """Six clients with four trainings each are just enough for four rounds, if none is lost: seen before anything is trained."""
    made, setup = scene("fedasync", clients={"most_trainings": 4})
    made.architecture.check(setup)
    made, setup = scene("fedasync", clients={"most_trainings": 4}, network={"link": {"loss": 0.3}})
    with pytest.raises(PreconditionError, match=r"nobody computes or sends any more.* Raise clients.most_trainings."):
        made.architecture.check(setup)
    with pytest.raises(StalledError):
        list(made.architecture.run(setup))


def test_an_epsilon_without_a_bound_names_it():
    noise = {"protocol": {"privacy": {"kind": "client", "clip": C, "epsilon": 3.0, "delta": DELTA}}}
    (reason,) = (one for one in cell("fedbuff(buffer=4)", **noise).verdict.reasons if "nothing bounds" in one)
    assert "clients.most_trainings, after which a client stops" in reason


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_budget_takes_from_the_largest_epsilon_and_costs_time(seed):
    def spent(**clients):
        noise = {"privacy": {"kind": "client", "clip": 0.5, "noise_multiplier": 1.0, "delta": DELTA}}
        _, _, reports, found = trained(
            "fedbuff(buffer=10)", seed, protocol=noise, clients={"total": 50, **clients}, evaluation={"every": 20},
            network={"compute": {"seconds": 0.01, "spread": 0.6, "jitter": 0.4}, "link": {"latency": 0.05}},
            training={"rounds": 20, "lr": 0.1, "batch_size": 16},
        )  # fmt: skip
        return found["epsilon"], found["ledger"]["epsilon"]["median"], reports[-1].moment.seconds

    freely, limited = spent(), spent(most_trainings=22)
    assert limited[0] < 0.75 * freely[0] and limited[1] > freely[1] and 1.2 * freely[2] < limited[2] < 1.6 * freely[2]
