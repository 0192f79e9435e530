"""Malicious clients that lie about when they are there: by whom that is believed, and what it brings them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import pytest

from fedguard.architectures.times import world
from fedguard.bench.running.card import threat_card
from fedguard.contracts import Fate, PoisonAttack, Sight, lies
from fedguard.contracts.channels import CHECK_IN, PROMISES
from fedguard.contracts.lying import Report
from fedguard.errors import ContractError
from fedguard.rng import Rng
from fedguard.simulated.barriers import k_of_n
from fedguard.simulated.course import ServerSimulation
from fedguard.simulated.selectors import DeviceSelection
from tests.simulated.scenes import Timetable
from tests.simulated.scenes import world as devices
from tests.simulated.test_selectors import SECOND
from tests.systems.scenes import cell, reports, scene
from tests.systems.test_systems_refused import ALONE

STEERED = "google(over=1.0, selection=60, check_ins=2)"
#: Of sixty clients, twelve of which a round asks, some are malicious.
CROWD = {"total": 60, "per_round": 12}
NETWORK = {"compute": {"seconds": 0.01, "spread": 0.3}}


def releases(system: str, attack: str, malicious: int, rounds: int = 12, seed: int = 0, **changes):
    """The course of a training, which is told without one."""
    clients = {**CROWD, "malicious": malicious}
    made, setup = scene(system, seed, clients=clients, attack=attack, network=NETWORK, **changes)
    chosen = lambda round: made.architecture.choose_clients(setup, round)  # noqa: E731
    simulated = world(setup, setup.task.initial_model(setup.rng.child("model")))
    barrier = made.architecture.barrier(setup.cell.clients)
    course = ServerSimulation(simulated, barrier, 60, chosen, setup.rng.child("course"), report=setup.report)
    return setup, list(islice(course.releases(), rounds))


def shares(setup, found) -> list[float]:
    """The malicious clients' part of the updates of each round."""
    return [sum(one.client in setup.malicious for one in release.arrivals) / len(release.arrivals) for release in found]


@pytest.mark.parametrize("malicious", [3, 6, 9, 12])
def test_who_checks_in_first_has_min_1_F_over_A_of_each_round(malicious):
    setup, found = releases(STEERED, "early_check_in", malicious)
    assert shares(setup, found) == [min(1.0, malicious / 12)] * 12
    setup, found = releases(STEERED, "sign_flip", malicious)
    assert sum(shares(setup, found)) / 12 == pytest.approx(malicious / 60, abs=0.1)


def test_only_who_acts_lies():
    later = {"threat": {"first_round": 5}}
    setup, found = releases(STEERED, "early_check_in", 6, **later)
    _, honest = releases(STEERED, "sign_flip", 6, **later)
    assert [one.arrivals for one in found[:4]] == [one.arrivals for one in honest[:4]]
    assert shares(setup, found)[4:] == [0.5] * 8


@pytest.mark.parametrize(("over", "malicious"), [(1.0, 6), (1.0, 20), (1.5, 12), (1.5, 30)])
def test_a_round_waits_for_who_never_reports_and_is_abandoned_where_too_few_do(over, malicious):
    """Of round(over * 12) that are asked k do not report: at once with 12 others, at the window with 10, else abandoned."""
    setup, found = releases(f"google(over={over}, window=30)", "no_show", malicious)
    began, fates = 0.0, set()
    for release in found:
        asked = [one.client for one in release.begun]
        there = round(over * 12) - sum(device in setup.malicious for device in asked)
        assert len(asked) == round(over * 12) and not setup.malicious & {one.client for one in release.arrivals}
        assert (release.abandoned is not None) == (there < 10)
        assert (release.at - began == pytest.approx(30.0)) == (there < 12)
        assert len(release.arrivals) == min(there, 12)
        assert {d for d in asked if d in setup.malicious} <= {one.client for one in release.of_fate(Fate.LATE)}
        began = release.at
        fates.add((there < 12, there < 10))
    assert len(fates) > 1 or over == 1.0


def test_who_is_not_there_says_that_it_is_and_takes_a_place():
    away = Timetable({2: [], 3: []})
    barrier = replace(k_of_n(3, 50.0, 1), selection=DeviceSelection(goal=3, timeout=20.0, least=2))

    def first(report: Report):
        simulated = devices(replace(SECOND, availability=away), 4)
        return next(ServerSimulation(simulated, barrier, 4, lambda round: range(4), Rng(0), report=report).releases())

    liar = first(
        lambda channel, device, truth, round: False if channel is PROMISES and (device, round) == (2, 1) else truth
    )
    assert {one.client for one in liar.begun} == {0, 1, 2} and [one.client for one in liar.of_fate(Fate.LATE)] == [2]
    assert liar.at == 50.0 and len(liar.arrivals) == 2  # the goal has checked in at once, and the window runs out
    truthful = first(lambda channel, device, truth, _: 0.0 if channel is CHECK_IN and device == 2 else truth)
    assert {one.client for one in truthful.begun} == {0, 1}  # who only hurries must be there


def accuracy(system: str, attack: str, malicious: int, **changes) -> float:
    settings = {"clients": {**CROWD, "malicious": malicious}, "network": NETWORK, "training": {"rounds": 15, "lr": 0.3}}
    *_, last = reports(system, attack=attack, **settings, evaluation={"every": 15}, **changes)
    return last.evaluation.accuracy


def test_seven_of_sixty_outvote_the_median():
    assert accuracy(STEERED, "sign_flip(scale=2)", 7, defense="median") > 0.6
    assert accuracy(STEERED, "early_check_in(scale=2)", 7, defense="median") < 0.2


def test_over_selection_is_the_defense_against_who_never_reports():
    assert accuracy("google(over=1.0)", "no_show", 24) < 0.3 < 0.6 < accuracy("google(over=2.0)", "no_show", 24)
    assert threat_card(cell("google", attack="no_show", clients={"malicious": 1}))["acts_on"] == [
        "participation",
        "promises",
    ]


@pytest.mark.parametrize("system", ["server", "parameter_server", "mapreduce", "fate", "decaf", *ALONE])
def test_where_nobody_asks_the_lie_is_refused(system):
    one = {"clients": {"malicious": 1}}
    (reason,) = cell(system, attack="no_show", **one).verdict.reasons
    assert "no_show lies about who will report" in reason and "Use google" in reason
    reasons = cell(system, attack="early_check_in", **one).verdict.reasons
    assert any("lies about when its devices check in" in reason for reason in reasons)
    for unsteered in ("google", "google(selection=30)"):
        assert cell(unsteered, attack="early_check_in", **one).verdict.reasons


def test_a_time_that_is_none_is_named():
    @dataclass(frozen=True, kw_only=True)
    class Yesterday(PoisonAttack):
        name = "yesterday"
        needs = (Sight.NOTHING,)

        @lies(CHECK_IN)
        def check_in(self, assigned):
            return -1.0

    _, setup = scene(STEERED, clients={**CROWD, "malicious": 1}, attack="early_check_in")
    with pytest.raises(ContractError, match=r"yesterday .* check_in: expected seconds, 0 or more; got float -1"):
        setup.with_parts(attack=Yesterday()).report(CHECK_IN, next(iter(setup.malicious)), 5.0, 1)
