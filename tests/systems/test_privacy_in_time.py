"""What noise proves where who takes part follows from speeds: releases counted by hand, and no amplification claimed."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from itertools import islice

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from fedguard.bench.running.protocol import privacy_spent
from fedguard.contracts import Fate, LocalTraining, Meeting, RoundReport, RoundTiming, Training
from fedguard.privacy.accounting import RDPAccountant
from fedguard.privacy.central import CentralDP
from fedguard.privacy.gaussian import epsilon, gaussian_event
from fedguard.privacy.kinds import record
from fedguard.privacy.ledger import shift_event, shifts, trainings
from fedguard.rng import Rng
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.world import World
from tests.parts import cell_of_parts
from tests.systems.scenes import EVEN, cell, scene
from tests.systems.test_asynchronous import UNEVEN

Z, C, DELTA = 2.0, 0.05, 1e-3
AT_SERVER = {"protocol": {"privacy": {"kind": "client", "clip": C, "noise_multiplier": Z, "delta": DELTA}}}
OWN = {"kind": "record", "clip": 1.0, "sample_rate": 0.1, "delta": 1e-4}
IN_CLIENTS = {"protocol": {"privacy": {**OWN, "noise_multiplier": 1.0}}, "training": {"local_steps": 2}}
EVENTUAL = "parameter_server(consistency='eventual')"


def exact(mu: float, delta: float = DELTA) -> float:
    """The epsilon of N(0, 1) against N(mu, 1), by its closed form (Balle and Wang 2018)."""

    def off(e: float) -> float:
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return 0.0 if off(0.0) <= 0 else float(brentq(off, 0.0, 200.0))


def course(made, setup):
    """The course of a private training: each takes the time of a client with the mean number of examples."""
    sizes = setup.task.sizes
    work = [setup.local_plan.work(round(sum(sizes) / len(sizes)))] * len(sizes)
    world = World(
        setup.cell.network, work, 4 * setup.task.dim, setup.rng.child("network"), setup.malicious,
        availability=setup.cell.availability,
    )  # fmt: skip
    chosen = lambda round: made.architecture.choose_clients(setup, round)  # noqa: E731
    barrier = made.architecture.barrier(setup.cell.clients)
    return ServerSimulation(world, barrier, setup.cell.clients.total, chosen, setup.rng.child("course")).releases()


def trained(system, seed=0, **changes):
    made, setup = scene(system, seed, **changes)
    setup = dataclasses.replace(setup, noise=setup.rng)  # one for all cells, so that two of them can be compared
    reports = list(made.architecture.run(setup))
    return made, setup, reports, privacy_spent(made, setup, reports)


def toy(*sums):
    moment = RoundTiming(seconds=1, computed=0, joules=0, bytes_up=0, bytes_down=0, weighed=sums)
    return RoundReport(round=1, model=torch.zeros(1), clients=(), moment=moment)


def test_updates_of_one_client_in_one_sum_add_up_before_they_are_squared():
    found = shifts([toy({0: 2.0, 1: 1.0}, {1: 1.0}), toy({1: 0.5, 2: 0.5})])
    assert found == {0: 2.0, 1: 1.5, 2: 0.5}  # (2), (1, 1, 1/2), (1/2)


def test_all_sums_together_are_one_gaussian_mechanism():
    private = CentralDP(noise_multiplier=Z, expected=5, clip=1.0)
    for shift in (0.3, 1.0, 3.7):
        assert 0 <= private.account_shift(shift, DELTA).value - exact(shift / Z) < 0.02


def test_who_is_once_in_each_of_so_many_sums_spends_what_as_many_rounds_of_all_cost():
    rounds = gaussian_event(
        noise_multiplier=Z, sample_rate=1.0, steps=9, sampling="none", unit="client", view="the published models"
    )
    ours = shift_event(Z, 3.0, ())
    assert RDPAccountant().total([ours], DELTA) == pytest.approx(RDPAccountant().total([rounds], DELTA), rel=1e-12)
    prv = epsilon(Z, 1.0, 9, DELTA, "prv", "client", "none").value
    assert CentralDP(noise_multiplier=Z, expected=1, clip=1.0).account_shift(3.0, DELTA).value == pytest.approx(
        prv, abs=0.02
    )


@pytest.mark.parametrize("system", ["fedbuff(buffer=6)", "parameter_server", "google(over=1.0)"])
def test_where_all_are_equally_fast_it_is_the_epsilon_of_server(system):
    _, _, models, ours = trained(system, **AT_SERVER, network=EVEN)
    _, _, theirs, rounds = trained("server", **AT_SERVER)
    assert ours["epsilon"] == pytest.approx(rounds["epsilon"], abs=0.02)
    assert ours["ledger"]["releases"] == {"least": 4, "median": 4, "most": 4}
    assert torch.equal(models[-1].model, theirs[-1].model)  # and the same noise on the same sum


@pytest.mark.parametrize(
    ("system", "scale"),
    [
        ("fedbuff(buffer=4)", lambda age: (1 + age) ** -0.5),
        ("fedbuff(buffer=4, scaled=False)", lambda age: 1.0),
        ("fedasync(alpha=0.5)", lambda age: 0.5 * (1 + age) ** -0.5),
        (EVENTUAL, lambda age: 1.0),
    ],
)
def test_the_worst_client_is_counted_as_by_hand(system, scale):
    made, setup, reports, found = trained(system, **AT_SERVER, network=UNEVEN, training={"rounds": 6})
    releases = list(islice(course(made, setup), sum(one.moment.releases for one in reports)))
    moved = [0.0] * 6
    for release in releases:
        each = Counter()
        for one in release.arrivals:
            each[one.client] += scale(release.version - one.version)
        for client, weight in each.items():
            moved[client] += weight**2
    assert found["epsilon"] == pytest.approx(exact(math.sqrt(max(moved)) / Z), abs=0.02)
    assert found["ledger"]["shift"]["most"] == pytest.approx(math.sqrt(max(moved)))
    assert found["ledger"]["epsilon"]["most"] == found["epsilon"] > found["ledger"]["epsilon"]["median"]
    assert (found["unit"], found["sampling"], found["bound"]) == ("client", "none", True)
    assert any("no sampling of clients is counted on" in text for text in found["assumptions"])
    (said,) = [text for text in found["assumptions"] if "deviation" in text or "against noise" in text]
    assert f"at most {math.sqrt(max(moved)):.6g} C, against noise of 2 C on each" in said
    twice = any(len({one.client for one in release.arrivals}) < len(release.arrivals) for release in releases)
    assert twice == ("fedbuff" in system)  # the case that is easily counted wrong has come


@pytest.mark.parametrize(
    ("system", "scale", "gain"),
    [
        ("fedbuff(buffer=4)", lambda age: (1 + age) ** -0.5, 1 / 4),
        ("fedasync(alpha=0.5)", lambda age: 0.5 * (1 + age) ** -0.5, 1.0),
        (EVENTUAL, lambda age: 1.0, 1 / 6),
    ],
)
def test_a_noisy_sum_is_of_updates_that_are_clipped_before_they_are_weighed(system, scale, gain):
    """A plain loop in float64; the draws of the noise alone are the library's, and tested for their law below."""
    made, setup, reports, _ = trained(system, **AT_SERVER, network=UNEVEN)
    start = setup.task.initial_model(setup.rng.child("model"))
    models, numbers = [start], sum(one.moment.releases for one in reports)
    for number, release in enumerate(islice(course(made, setup), numbers), start=1):
        total, now = torch.zeros(len(start), dtype=torch.float64), models[-1].double()
        for one in release.arrivals:
            out, draws = torch.empty(1, len(start)), setup.rng.child("round", one.turn)
            setup.task.local_updates(models[one.version], [one.client], setup.local_plan, draws, out)
            update = out[0].double()
            update *= min(1.0, C / float(update.norm()))
            way = models[one.version].double() - now if "fedasync" in system else 0.0
            total += scale(release.version - one.version) * (update + way)
        noise = torch.randn(len(start), generator=setup.rng.child("privacy", number).child("noise").torch())
        models.append((now + gain * (total + Z * C * noise.double())).float())
    assert float((reports[-1].model - models[-1]).norm() / (models[-1] - start).norm()) < 1e-5


def test_the_noise_of_a_buffer_has_its_law():
    """With hardly any training, models move by noise alone: N(0, (z C / B)^2) for each release."""
    still = {**AT_SERVER, "training": {"lr": 1e-9, "rounds": 3}}
    _, setup, reports, _ = trained("fedbuff(buffer=6)", **still)
    models = torch.stack([setup.task.initial_model(setup.rng.child("model")), *(one.model for one in reports)])
    moved = models.diff(dim=0).double().flatten() * 6 / (Z * C)
    assert kstest(moved.numpy(), "norm").pvalue > 1e-4


def test_a_count_of_short_updates_weighs_them_too():
    """An adaptive clip's count moves by half of what the sum does, so one shift tells of both."""
    made, _ = scene(
        "fedbuff", protocol={"privacy": {"kind": "client", "clip": {}, "noise_multiplier": 1e-9, "delta": DELTA}}
    )
    private = dataclasses.replace(made.noise.at_server(made.in_sessions), noise_multiplier=0.5)
    rows, state = torch.zeros(2, 3), private.start()
    clips = [
        private.release(rows, state, Rng(0), torch.tensor(weights))[1].clip for weights in ([1.0, 1.0], [0.25, 0.5])
    ]
    more, less = (-math.log(clip / state.clip) / private.clip.lr * private.expected for clip in clips)
    assert more - less == pytest.approx((2 - 0.75) / 2, rel=1e-6)


@pytest.mark.parametrize(
    "system",
    ["fedasync", "fedbuff(buffer=4)", "basgd(buffers=3)", EVENTUAL, "google(over=1.5)", "mapreduce(combiners=4)"],
)
def test_trainings_with_noise_of_their_own_are_counted_whatever_became_of_them(system):
    clients = {"per_round": 4}
    _, _, reports, found = trained(system, **IN_CLIENTS, clients=clients, network={**UNEVEN, "link": {}})
    ended = Counter(span.client for one in reports for span in one.moment.trainings)
    most = max(ended.values())
    alone = epsilon(1.0, 0.1, 2 * most, 1e-4, "prv", "record", "poisson").value
    assert found["epsilon"] == pytest.approx(alone) and found["rounds"] == most
    assert found["ledger"] == {
        "counted": "as it ran",
        "clients": 6,
        "releases": {
            "least": min(ended[c] for c in range(6)),
            "median": found["ledger"]["releases"]["median"],
            "most": most,
        },
    }


def test_late_lost_and_interrupted_trainings_count():
    fates = [LocalTraining(0, 0, 1, fate) for fate in (Fate.ARRIVED, Fate.LATE, Fate.LOST, Fate.INTERRUPTED)]
    one = toy()
    assert trainings([dataclasses.replace(one, moment=dataclasses.replace(one.moment, trainings=tuple(fates)))]) == {
        0: 4
    }


# Noise that clients share out below masks.

SHARED = {"kind": "distributed", "noise_multiplier": Z, "clip": 0.5, "delta": DELTA}
MASKED = {"protocol": {"secure_aggregation": "full", "privacy": SHARED}}


def test_shared_noise_where_all_are_equally_fast_proves_what_it_does_under_server():
    short = {**MASKED, "training": {"rounds": 2}, "network": EVEN}
    _, _, models, ours = trained("parameter_server", **short)
    _, _, theirs, rounds = trained("server", **short)
    assert ours["epsilon"] == rounds["epsilon"] and ours["ledger"]["releases"] == {"least": 2, "median": 2, "most": 2}
    assert torch.equal(models[-1].model, theirs[-1].model)


def test_shared_noise_in_buffers_counts_the_sums_that_hold_a_client():
    made, setup, reports, found = trained("fedbuff(buffer=4)", **MASKED, network=UNEVEN, training={"rounds": 2})
    sums = Counter(client for one in reports for client in one.clients)  # nobody is twice in a session
    most = max(sums.values())
    assert most < sum(one.moment.releases for one in reports) or min(sums.values()) < most
    share = made.noise._share(made.architecture.sessions(setup.cell), setup.task.dim)
    assert found["contributors"] == 4 == found["expected_contributors"]
    assert found["epsilon"] == share.account_rounds([4] * most).value > exact(math.sqrt(most) / Z) - 1e-9
    assert found["ledger"]["releases"]["most"] == most
    assert any(text.startswith("who sends when") for text in found["assumptions"])


# Over-selection, and the first K of N: who is quick is in each round, whatever the share of a round.

FIRST = {
    "clients": {"total": 12, "per_round": 3},
    "training": {"rounds": 12},
    "network": {"compute": {"seconds": 0.01, "spread": 1.0}},
}


def test_the_first_of_many_are_not_hidden_by_a_draw():
    """A quarter takes part in a round, but the quickest in all: the epsilon of a draw would be several times too small."""
    _, _, _, found = trained("google(over=4.0)", **AT_SERVER, **FIRST)
    assert found["ledger"]["releases"]["most"] == 12 and found["sampling"] == "none"
    true = exact(math.sqrt(12) / Z)  # what a distinguisher of the quickest client's presence reaches
    assert true <= found["epsilon"] < true + 0.02
    assert epsilon(Z, 0.25, 12, DELTA, "prv", "client", "poisson").value < true / 2
    assert found["ledger"]["releases"]["least"] == 0


@pytest.mark.parametrize(
    "system", ["fedasync", "fedbuff(buffer=4)", EVENTUAL, "parameter_server", "google", "google(over=2.0)"]
)
@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_no_system_in_time_claims_that_a_draw_hides_anybody(system, sampling):
    clients = {"per_round": 3, "sampling": sampling}
    _, _, _, found = trained(
        system, **AT_SERVER, clients=clients, network=UNEVEN if system != "parameter_server" else EVEN
    )
    shift = found["ledger"]["shift"]["most"]
    assert found["sampling"] == "none" and found["epsilon"] >= exact(shift / Z) - 1e-9


def test_server_claims_a_draw_only_where_times_decide_nothing():
    quarter = {"clients": {"total": 12, "per_round": 3, "sampling": "poisson"}}
    _, _, _, with_times = trained("server", **AT_SERVER, **quarter, network=UNEVEN | {"link": {"latency": 1}})
    _, _, _, without = trained("server", **AT_SERVER, **quarter, network=None)
    assert with_times == without and with_times["sampling"] == "poisson"
    for missing in ({"link": {"loss": 0.1}}, {"there": "on_off(on=60, off=30)"}):
        assert cell("server", **AT_SERVER, **quarter, network=missing).verdict.reasons


# Before the run, and after it.


@pytest.mark.parametrize(
    ("system", "kind"),
    [
        ("parameter_server", "client"),
        ("google(over=1.5)", "client"),
        ("parameter_server(consistency='bounded', tau=2)", "client"),
        pytest.param("parameter_server(consistency='bounded', tau=2)", "record", marks=pytest.mark.slow),
    ],
)
def test_noise_from_an_epsilon_is_enough_for_as_many_releases_as_the_plan_allows(system, kind):
    asked = {
        "client": {"kind": "client", "clip": C, "epsilon": 3.0, "delta": DELTA},
        "record": {**OWN, "epsilon": 3.0},
    }[kind]
    per_round = 1.0 if "bounded" in system else 4
    settings = {"protocol": {"privacy": asked}, "clients": {"per_round": per_round}, "training": {"local_steps": 2}}
    made, _, _, found = trained(system, **settings, network={**UNEVEN, "link": {}})
    most = made.meeting.most
    assert most == (4 + 2 + 1 if "bounded" in system else 4)
    assert found["ledger"]["releases"]["most"] <= most and found["epsilon"] <= 3.0
    if kind == "client":
        assert f"At most {most} updates of a client count" in made.noise.in_words(made.in_sessions)


@pytest.mark.parametrize("once", [False, True])
def test_what_is_said_before_a_run_counts_all_updates_of_a_client_in_one_sum(once):
    """Half of a buffer may be one client's: the epsilon that was asked for is the one that is said, and neither less nor more."""
    asked = {"kind": "client", "clip": C, "epsilon": 3.0, "delta": DELTA}
    system = f"fedbuff(buffer=4, once={str(once).lower()})"
    clients = {"most_trainings": 6}
    made, _ = scene(system, 0, protocol={"privacy": asked}, clients=clients, network={**UNEVEN, "link": {}})
    assert (made.meeting.in_one > 1) is not once
    (value,) = re.findall(r"so at most epsilon = ([\d.]+)\.", made.noise.in_words(made.in_sessions))
    assert float(value) == pytest.approx(3.0, rel=2e-3)


def test_the_steps_of_a_client_are_planned_for_as_many_trainings_as_it_may_release(monkeypatch):
    asked = []
    monkeypatch.setattr(record, "least_noise", lambda **given: asked.append(given["steps"]) or 1.0)
    noise = record.RecordNoise(epsilon=3.25, **{k: v for k, v in OWN.items() if k != "kind"})
    for most in (4, 7):
        record.dp_sgd(noise, cell_of_parts(training=Training(local_steps=2), meeting=Meeting(updates=1, most=most)))
    assert asked == [2 * 4, 2 * 7]


def test_malicious_clients_who_see_the_honest_updates_leave_no_guarantee_and_others_do():
    settings = {**AT_SERVER, "attack": "ipm", "clients": {"malicious": 2}, "network": UNEVEN}
    _, _, _, found = trained("fedbuff(buffer=4)", **settings)
    assert found["epsilon"] is None and "Take honest_updates from threat.knowledge" in found["why"]
    blind = {**settings, "attack": "gaussian", "threat": {"knowledge": ["own_data", "model"]}}
    _, _, reports, found = trained("fedbuff(buffer=4)", **blind)
    assert found["epsilon"] > 0 and found["ledger"]["clients"] == 4
    assert all(one.clip == C for one in reports)


def test_times_do_not_tell_how_many_examples_a_client_has():
    """Alike devices and unlike clients: with noise all arrive at once, without it by their sizes."""
    unlike = {"task": {"partition": "dirichlet(alpha=0.2)"}, "network": {"compute": {"seconds": 0.01}}}
    for noise, at_once in ((AT_SERVER, True), ({}, False)):
        made, setup = scene("parameter_server", **unlike, **noise)
        spans = next(iter(made.architecture.run(setup))).moment.trainings
        assert len(set(setup.task.sizes)) > 1 and (len({span.ended for span in spans}) == 1) == at_once


def test_each_of_the_servers_of_a_model_knows_the_noise_of_the_levels():
    levels = [{"noise_multiplier": 1.0}, {"noise_multiplier": 2.0, "clip": 0.5}, {"noise_multiplier": 4.0}]
    settings = {"protocol": {"privacy": {**OWN, "levels": levels}}, "training": {"local_steps": 2}}
    whole, parts = (
        trained(f"parameter_server(consistency='sequential', ranges={ranges})", **settings, defense="inverse_variance")[
            2
        ]
        for ranges in (1, 3)
    )
    torch.testing.assert_close(parts[-1].model, whole[-1].model)


def test_levels_of_privacy_weigh_the_updates_of_a_buffer():
    """Each client its own epsilon and clip; weights 1 / (z C)^2 beside those for age."""
    levels = [{"noise_multiplier": 1.0}, {"noise_multiplier": 2.0, "clip": 0.5}, {"noise_multiplier": 4.0}]
    settings = {"protocol": {"privacy": {**OWN, "levels": levels}}, "training": {"local_steps": 2}, "network": UNEVEN}
    made, setup, reports, found = trained("fedbuff(buffer=4)", **settings, defense="inverse_variance")
    start = setup.task.initial_model(setup.rng.child("model"))
    models = [start]
    for release in islice(course(made, setup), sum(one.moment.releases for one in reports)):
        updates, weights = [], []
        for one in release.arrivals:
            out, draws = torch.empty(1, len(start)), setup.rng.child("round", one.turn)
            setup.task.local_updates(models[one.version], [one.client], setup.local_plan, draws, out)
            updates.append(out[0].double() / math.sqrt(1 + release.version - one.version))
            clip, noise = [(1.0, 1.0), (0.5, 2.0), (1.0, 4.0)][one.client % 3]
            weights.append((clip * noise) ** -2)
        mean = sum(weight * update for weight, update in zip(weights, updates, strict=True)) / sum(weights)
        models.append((models[-1].double() + mean).float())
    assert float((reports[-1].model - models[-1]).norm() / (models[-1] - start).norm()) < 1e-5
    ended = trainings(reports)
    for number, level in enumerate(found["levels"]):
        most = max(ended[client] for client in range(6) if client % 3 == number)
        alone = epsilon(levels[number]["noise_multiplier"], 0.1, 2 * most, 1e-4, "prv", "record", "poisson").value
        assert level["epsilon"] == pytest.approx(alone)
