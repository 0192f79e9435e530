"""Sessions of secure aggregation in simulated time: one for each buffer, and at Google's with the late as dropouts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import pytest
import torch

from fedguard.architectures.systems.google import Google
from fedguard.bench.running.protocol import protocol_card
from fedguard.contracts import Fate, PoisonAttack, PoisonView, SentRound, Sight
from fedguard.simulated.barriers import buffer_barrier
from tests.simulated.scenes import STRAGGLER, course, releases
from tests.systems.scenes import cell, models, off, reports, scene
from tests.systems.test_asynchronous import CLIENTS, UNEVEN, compared, fedbuff

FULL = {"protocol": {"secure_aggregation": "full"}}
#: Rounding to 20 bits below 4 moves a coordinate by 8e-6 at most; of ways of some .1 a coordinate, over some rounds.
ROUNDED = 5e-3


@pytest.mark.parametrize("system", ["fedbuff(buffer=6)", "google(over=1.0)", "parameter_server"])
def test_where_all_are_equally_fast_it_is_the_masked_server_to_the_last_bit(system):
    short = {"training": {"rounds": 2}}
    masked = models(system, **FULL, **short)
    assert torch.equal(masked, models(**FULL, **short))
    assert not torch.equal(masked, models(system, **short))


def test_a_masked_buffer_is_the_plain_one_but_for_rounding():
    """Against the paper's loop, over a course in which nobody is twice in a buffer."""
    per_round = -(-CLIENTS // 5)
    distance, _, found, said = compared("fedbuff(buffer=5)", fedbuff(), per_round, rounds=3, **FULL)
    assert distance < ROUNDED
    assert all(len({one.client for one in release.arrivals}) == 5 for release in found)
    assert max(one for release in found for one in release.staleness()) > 2
    for report in said:
        assert report.masked.sessions == per_round and not report.masked.aborted
        assert report.masked.survivors == 5 * per_round and report.masked.error < ROUNDED
        assert all(len(row) == 5 for row in report.behind)
    plain_mean = lambda model, updates, starts, staleness: model + updates.mean(0)  # noqa: E731
    assert compared("fedbuff(buffer=5)", plain_mean, per_round, rounds=3, **FULL)[0] > 10 * ROUNDED


def test_a_second_update_waits_for_the_next_buffer():
    """Three of four devices fill a buffer of three before the slow one comes; each stands in it once, and nothing is lost."""

    def found(once: bool):
        barrier = replace(buffer_barrier(3), once=once)
        return list(islice(course(STRAGGLER, barrier, 10, crew=2).releases(), 40))

    loose, tight = found(False), found(True)
    assert any(len({one.client for one in release.arrivals}) < 3 for release in loose)
    assert all(len({one.client for one in release.arrivals}) == 3 for release in tight)
    sent = [one.key for release in tight for one in release.arrivals]
    assert len(set(sent)) == len(sent) == 120
    for device in range(10):  # in the order in which it did them
        turns = [turn for one, turn in sent if one == device]
        assert turns == sorted(turns)
    for release in tight:
        assert all(one.version <= release.version and one.ended <= release.at for one in release.arrivals)


def test_no_update_waits_where_each_device_comes_once():
    plain = releases(STRAGGLER, buffer_barrier(10), 10, 3)
    assert all(release.staleness().count(0) for release in plain)
    once = list(islice(course(STRAGGLER, replace(buffer_barrier(10), once=True), 10).releases(), 3))
    assert all({one.client for one in release.arrivals} == set(range(10)) for release in once)


@dataclass(frozen=True, kw_only=True)
class Constant(PoisonAttack):
    """One half in each coordinate, whatever the others send."""

    name = "constant"
    goal = "untargeted"
    needs = (Sight.NOTHING,)

    def craft(self, view: PoisonView) -> torch.Tensor:
        return torch.full((view.f, view.dim), 0.5)


@pytest.mark.parametrize("masked", [False, True])
def test_under_masks_a_malicious_client_does_not_shrink_what_is_old(masked):
    """Honest updates are next to nothing here: a buffer moves the model by the mean of s_i / 2 of the malicious ones."""
    made, setup = scene(
        "fedbuff(buffer=5)",
        1,
        network=UNEVEN,
        clients={"total": CLIENTS, "malicious": 3},
        training={"rounds": 3, "lr": 1e-9},
        attack="ipm",
        **(FULL if masked else {}),
    )
    before, shares = setup.task.initial_model(setup.rng.child("model")), []
    for report in made.architecture.run(setup.with_parts(attack=Constant(), attack_sees=Sight.NOTHING)):
        moved, before = float((report.model - before).mean()), report.model
        hostile = sum(client in setup.malicious for client in report.clients)
        shares.append(moved / (0.5 * hostile / 5) if hostile else 1.0)
    assert (min(shares) > 1 - ROUNDED) == masked
    assert max(shares) < 1 + ROUNDED


# Google's: all who are asked agree on keys, and the late are dropouts.

CROWD = {"clients": {"total": 30, "per_round": 15}, "training": {"rounds": 2}, "network": UNEVEN}


def test_the_sum_is_of_those_who_came_in_time():
    system = "google(over=1.3, least=0.9)"
    masked, unmasked = list(reports(system, **CROWD, **FULL)), list(reports(system, **CROWD))
    first, plain = masked[0], unmasked[0]
    assert len(first.clients) == len(plain.clients) == 15 and len(first.chosen) == 20
    assert first.masked.clients == 20 and first.masked.survivors == 15
    assert set(first.of_fate(Fate.LATE)) & set(first.clients) == set() and first.of_fate(Fate.SILENT) == ()
    start = models(system, **CROWD | {"training": {"rounds": 1}})[0]
    ways = [torch.stack([start, found[-1].model]) for found in (masked, unmasked)]
    assert off(*ways) < ROUNDED


def test_a_session_is_planned_for_as_many_dropouts_as_a_round_stands():
    made = cell("google(over=1.3, least=0.9)", **CROWD, **FULL)
    planned = protocol_card(made)["session"]
    assert planned["clients"] == 20 and planned["survivors"] <= 14
    system, participation = Google(over=1.3, least=0.9), made.clients
    assert system.barrier(participation).least == 14
    assert made.in_sessions.protocol.dropout.rate == pytest.approx(1 - 14 / 20)
    assert made.protocol.dropout.rate == 0


def test_a_group_whose_devices_are_late_loses_its_own_sum_alone():
    """What an aggregator of the paper holds is lost with it, and no more."""
    groups = {"protocol": {"secure_aggregation": {"groups": 2}, "colluding": 0.0}}
    made, setup = scene("google(over=1.0)", clients={"total": 12}, **groups)
    receiver = setup.cell.masking.receiver(setup)
    everyone = tuple(range(12))
    late, there = receiver.deal(everyone, 1)
    rows = torch.arange(12.0)[:, None].expand(12, setup.task.dim) / 12
    model, missing = torch.zeros(setup.task.dim), dict.fromkeys(late, Fate.LATE)
    received = receiver.receive(SentRound(1, model, rows[list(there)].contiguous(), there, fates=missing))
    assert received.behind == (there,) and len(received.masked.aborted) == 1
    assert torch.allclose(received.rows[0], rows[list(there)].mean(0), atol=1e-5)
    assert len(made.in_sessions.clients.there(1)) == 12


def test_more_late_than_the_session_stands_is_refused_before_it_runs():
    reasons = cell("google(over=2.0)", **CROWD, **FULL).verdict.reasons
    assert len(reasons) == 1 and "delta counts who may be late, too: raise least." in reasons[0]


def test_devices_that_were_selected_start_together_and_so_have_a_session_where_devices_come_and_go():
    away = {**UNEVEN, "there": "on_off(on=40, off=10)"}
    system = "google(over=1.2, least=0.9, selection=5)"
    for report in reports(system, clients={"total": 30, "per_round": 12}, training={"rounds": 3}, network=away, **FULL):
        assert report.abandoned is None and not report.masked.aborted
        assert report.masked.clients == len(report.chosen) >= 13
        gone = len(report.of_fate(Fate.LATE)) + len(report.of_fate(Fate.INTERRUPTED)) + len(report.of_fate(Fate.LOST))
        assert report.masked.survivors == len(report.chosen) - gone == len(report.clients)
