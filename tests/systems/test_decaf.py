"""DeCaf: shares of work that a deadline leaves time for, examples that move between trusted devices, and lies about rates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pytest
import torch

from fedguard.bench.running.card import threat_card
from fedguard.contracts import Channel, Fate, LocalPlan, Network, Pipeline, Sight, Speeds, Stragglers, WeightRule, lies
from fedguard.contracts.channels import AVAILABILITY, RATE
from fedguard.contracts.network import Links
from fedguard.errors import ContractError
from fedguard.rng import Rng
from fedguard.simulated.barriers import k_of_n
from fedguard.simulated.course import AggregationEvent, ServerSimulation
from fedguard.simulated.fractions import Deadline, Fractions
from fedguard.simulated.world import World
from fedguard.tasks.cohort import schedule
from tests.simulated.scenes import Timetable
from tests.systems.scenes import cell, models, reports, scene

D = 10.0
UNEVEN: dict[str, Any] = {"compute": {"seconds": 0.01, "spread": 1.0, "jitter": 0.2}, "link": {"latency": 0.1}}
SORTED = {"partition": "label_sorted(shards=2)"}
PASS = {"local_epochs": 1, "batch_size": 16}


def releases(
    network: Network,
    work: list[float],
    count: int,
    quick: frozenset[int] = frozenset(),
    factor: float = 1.0,
    **law: Any,
) -> tuple[World, list[AggregationEvent]]:
    """Rounds of devices with so much work under a deadline of `D`; the ``quick`` ones tell ``factor`` times their rate."""
    world = World(network, work, 1000, Rng(0).child("network"))
    settings = Deadline(**{"seconds": D, "least": 0.1, "trusted": 1, "history": 5, **law})

    def report(channel: Channel[Any, ...], device: int, truth: float, _: int) -> float:
        return truth * factor if channel is RATE and device in quick else truth

    fractions = Fractions(settings, world, [500] * len(work), Rng(1), report)
    course = ServerSimulation(world, k_of_n(len(work), D), len(work), lambda _: range(len(work)), Rng(2), fractions)
    return world, list(islice(course.releases(), count))


# Shares of work.


@pytest.mark.parametrize("plan", [LocalPlan(lr=1, epochs=2, batch_size=4), LocalPlan(lr=1, steps=3, batch_size=4), LocalPlan(lr=1, steps=1)])  # fmt: skip
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99, 1.0])
def test_a_client_begins_as_one_that_does_all_and_stops(plan, share):
    whole = [batch[batch >= 0].tolist() for batch in schedule(plan, 10, Rng(3).numpy())]
    parts = [batch[batch >= 0].tolist() for batch in schedule(plan, 10, Rng(3).numpy(), share)]
    assert all(part == all_of_it[: len(part)] for part, all_of_it in zip(parts, whole, strict=False))
    assert sum(map(len, parts)) == max(1, math.floor(share * plan.work(10) + 1e-9))
    assert [len(part) for part in parts[:-1]] == [len(batch) for batch in whole[: len(parts) - 1]]


@pytest.mark.parametrize("model", ["softmax", "mlp"])
def test_an_update_of_a_share_is_that_of_a_plain_loop_that_stops(model):
    _, setup = scene(task={"model": model})
    task, plan = setup.task, LocalPlan(lr=0.1, epochs=1, batch_size=16, momentum=0.5, shares={1: 0.4})
    start, clients = task.initial_model(Rng(4)), [0, 1, 2]
    rows = task.local_updates(start, clients, plan, Rng(5), torch.empty(3, task.dim))
    whole = task.local_updates(start, clients, replace(plan, shares=None), Rng(5), torch.empty(3, task.dim))
    assert torch.equal(rows[[0, 2]], whole[[0, 2]])
    now, velocity, own = start.clone(), torch.zeros(task.dim), task.examples(1)
    order = Rng(5).child("client", 1).numpy().permutation(len(own))[: int(0.4 * len(own))]
    for batch in torch.from_numpy(order).split(16):
        at = now.requires_grad_()
        loss = torch.nn.functional.cross_entropy(task.logits(at, own.x[batch]), own.y[batch])
        velocity = 0.5 * velocity + torch.autograd.grad(loss, at)[0]
        now = (at - 0.1 * velocity).detach()
    assert (rows[1] - (now - start)).norm() < 1e-5 * (now - start).norm() < 1e-5 * whole[1].norm()
    seen = task.examples_used(1, plan, Rng(5))
    assert torch.equal(seen.y, own.y[torch.from_numpy(order)])


def test_the_share_is_that_of_the_formula_and_the_deadline_is_met_to_the_microsecond():
    """p = min(1, r (D - t) / n): devices of 1 second an example, 2 seconds of messages."""
    network = Network(compute=Speeds(seconds=1.0), link=Links(latency=1.0))
    _, (first, *later) = releases(network, [4.0, 8.0, 16.0, 40.0], 4)
    assert [job.share for job in first.begun] == [0.1] * 4
    for release in later:
        assert {job.client: pytest.approx(job.share, abs=1e-6) for job in release.begun} == {0: 1, 1: 1, 2: 0.5, 3: 0.2}
        assert len(release.arrivals) == 4 and not release.of_fate(Fate.LATE)
        assert max(one.ended - one.began for one in release.arrivals) == pytest.approx(D, abs=2e-6)


@pytest.mark.parametrize("history", [1, 4])
def test_who_counts_on_the_slowest_of_m_trainings_is_late_once_in_m_plus_one(history):
    """Times of one device are drawn alike, so the next is the longest of m + 1 as often as any other of them."""
    network = Network(compute=Speeds(seconds=1.0, jitter=0.4))
    _, found = releases(network, [40.0] * 60, 60, history=history, least=0.01)
    later = found[history + 1 :]
    late = sum(len(one.of_fate(Fate.LATE)) for one in later) / sum(len(one.begun) for one in later)
    assert late == pytest.approx(1 / (history + 1), abs=0.03)


def test_a_deadline_that_all_can_meet_is_the_servers_round():
    assert torch.equal(models("decaf(deadline=1000, least=1)"), models())


def test_lost_shares_are_remembered_under_worker_momentum():
    lossy = {"compute": {"seconds": 0.01, "spread": 1.0}, "link": {"loss": 0.5}}
    ours: dict[str, Any] = {"network": lossy, "training": {"worker_momentum": 0.5, **PASS}}
    found = list(reports("decaf(deadline=0.5)", **ours))
    assert sum(len(one.of_fate(Fate.LOST)) for one in found) > 3 and found[-1].model.isfinite().all()


# Who is there, and whose examples move.


SLOW = Network(compute=Speeds(seconds=1.0))


@pytest.mark.parametrize(("least", "moves"), [(0.1, 0), (0.3, 2), (0.7, None)])
def test_examples_move_to_the_trusted_device_that_has_most_time_or_the_client_is_dropped(least, moves):
    """Ten seconds are a quarter of client 0's 40; at a device twice as quick half of what it has left. Device 3 is not trusted."""
    network = Network(compute=Speeds(seconds=1.0, paces=(1.0, 0.4, 0.4, 0.4)))
    world = World(network, [40.0, 8.0, 2.0, 1.0], 1000, Rng(0).child("network"))
    law = Deadline(seconds=D, least=least, trusted=3, history=5)
    fractions = Fractions(law, world, [500] * 4, Rng(1))
    found = islice(ServerSimulation(world, k_of_n(4, D), 4, lambda _: range(4), Rng(2), fractions).releases(), 5)
    for release in list(found)[1:]:
        by = {job.client: job for job in release.begun}
        assert {client: job.by for client, job in by.items() if client} == {1: 1, 2: 2, 3: 3}
        assert (by[0].by if 0 in by else None) == moves
        if moves == 2:
            assert by[0].share == pytest.approx((D - 0.4 * 2) / (0.4 * 40), abs=1e-6)


def test_what_moves_is_trained_after_the_own_examples_for_the_share_that_is_left():
    network = Network(compute=Speeds(seconds=1.0, slow=Stragglers(share=0.25, factor=30.0)), link=Links(latency=0.5))
    world = World(network, [4.0] * 4, 1000, Rng(0).child("network"))
    slow = max(range(4), key=lambda device: world.compute(device, 1))
    world, found = releases(network, [4.0] * 4, 6, trusted=4, least=0.2)
    for release in found[1:]:
        moved = [job for job in release.begun if job.client != job.by]
        assert [job.client for job in moved] == [slow] and moved[0].by != slow
        own = next(one for one in release.arrivals if one.client == moved[0].by)
        theirs = next(one for one in release.arrivals if one.client == slow)
        assert theirs.by == moved[0].by and theirs.began >= own.ended
        assert moved[0].share == pytest.approx(1, abs=1e-6)
        assert theirs.ended - own.ended == pytest.approx(5.0)  # two messages and four examples
    _, alone = releases(network, [4.0] * 4, 6, trusted=1, least=0.2)
    assert all(slow not in [one.client for one in release.begun] for release in alone[1:])


def test_bytes_of_examples_are_counted_where_they_move_and_not_again():
    network = Network(compute=Speeds(seconds=1.0, slow=Stragglers(share=0.5, factor=100.0)))
    world, found = releases(network, [4.0, 4.0], 5, trusted=2, least=0.2)
    jobs = [job for release in found for job in release.begun]
    assert sum(job.client != job.by for job in jobs) == 4
    assert world.spent.bytes_down == 1000 * len(jobs) + 500


def test_who_never_stays_is_not_asked_and_its_examples_move_while_it_is_there_to_send_them():
    leaves = [(20 * k, 20 * k + 15.0) for k in range(20)]  # there for half of each second round
    network = Network(compute=Speeds(seconds=1.0), availability=Timetable({0: leaves}))
    _, found = releases(network, [6.0, 2.0], 12, trusted=2, least=0.6, history=4)
    by = [{job.client: job.by for job in release.begun} for release in found]
    assert by[0] == {0: 0, 1: 1}
    assert all(one.get(0) in (0, 1) for one in by[4:])
    away = Network(compute=Speeds(seconds=1.0), availability=Timetable({0: [(0.0, 1.0)]}))
    _, found = releases(away, [6.0, 2.0], 6, trusted=2, least=0.6)
    assert all(0 not in [job.client for job in release.begun] for release in found[2:])  # it never comes to send them


# What is claimed.


@dataclass(frozen=True, kw_only=True)
class Heard(WeightRule):
    """The weighted mean, and a note of who claims what."""

    name = "heard"
    needs = (Sight.EACH_UPDATE,)
    reads_clients = True
    seen: list = field(default_factory=list)

    def weights(self, gram, context):
        self.seen.append(dict(zip(context.clients, context.samples.tolist(), strict=True)))
        return context.samples / context.samples.sum()


def heard(attack: str, system: str, **settings: Any) -> tuple[Any, list[dict[int, float]]]:
    made, setup = scene(system, clients={"total": 6, "malicious": 1}, attack=attack, network=UNEVEN, **settings)
    rule = Heard()
    setup = setup.with_parts(pipeline=Pipeline((rule,)), rule_sees=Sight.EACH_UPDATE)
    list(made.architecture.run(setup))
    return setup, rule.seen


def test_a_client_claims_the_share_that_it_trained_and_a_liar_more():
    setup, honest = heard("sign_flip", "decaf(deadline=1)", training={"rounds": 3, **PASS}, seed=1)
    _, lying = heard("overstated_rate(factor=100)", "decaf(deadline=1)", training={"rounds": 3, **PASS}, seed=1)
    (liar,), sizes = setup.malicious, setup.task.sizes
    for now, then in zip(honest[1:], lying[1:], strict=True):
        assert {client: said for client, said in now.items() if client != liar} == {
            client: said for client, said in then.items() if client != liar
        }
        assert all(said <= sizes[client] for client, said in then.items())
    assert any(min(now.values()) < 0.5 * min(sizes) for now in honest)
    assert lying[1][liar] == sizes[liar] > honest[1][liar]


def test_a_device_that_overstates_its_rate_gets_the_examples_of_others():
    work = [60.0, 9.0, 4.0, 4.0, 4.0]
    _, honest = releases(SLOW, work, 3, trusted=5, least=0.2)
    _, lying = releases(SLOW, work, 3, trusted=5, least=0.2, quick=frozenset({1}), factor=10.0)
    of = [{job.client: job for job in found[2].begun}.get(0) for found in (honest, lying)]
    assert of[0] is None and of[1].by == 1
    assert of[1].claimed == pytest.approx(10 / 60, abs=1e-6) and of[1].share == pytest.approx(1 / 60, abs=1e-6)


def malicious_share(attack: str, seeds: int, rounds: int) -> float:
    settings: dict[str, Any] = {"network": UNEVEN, "clients": {"total": 10, "malicious": 2}, "attack": attack}
    training, evaluation = {"rounds": rounds, **PASS}, {"every": rounds}
    found = [
        one
        for seed in range(seeds)
        for one in reports("decaf(deadline=2, least=0.5, trusted=5)", seed, training=training, evaluation=evaluation, **settings)
    ]  # fmt: skip
    sent = [client in one.malicious for one in found for client in one.clients]
    return sum(sent) / len(sent)


@pytest.mark.slow
def test_lies_about_rates_raise_the_malicious_share_of_updates():
    true, high, low = (malicious_share(one, 5, 30) for one in ("sign_flip", "overstated_rate", "overstated_rate(factor=0.1)"))  # fmt: skip
    assert low < 0.05 < true < 0.2 < high


def test_lies_about_rates_raise_the_malicious_share_of_updates_in_one_seed():
    assert malicious_share("sign_flip", 1, 5) < 0.2 < malicious_share("overstated_rate", 1, 5)


@pytest.mark.parametrize(("channel", "value"), [(RATE, 0.0), (RATE, math.nan), (RATE, "much"), (AVAILABILITY, 1.5)])
def test_a_claim_is_a_rate_or_a_share(channel, value):
    made, setup = scene("decaf(deadline=1, history=1)", clients={"malicious": 2}, attack="zeros", network=UNEVEN)
    bad = type("Bad", (type(setup.cell.attack),), {"name": "bad", "lie": lies(channel)(lambda self, truth: value)})()
    with pytest.raises(ContractError, match=f"bad broke its contract: {channel.name}: expected"):
        list(made.architecture.run(setup.with_parts(attack=bad)))


# What it is for.


def met(system: str, seed: int, rounds: int) -> tuple[float, float, float]:
    """Share of the deadlines that clients met after the second round, final accuracy, and that of the worst class."""
    found = list(
        reports(
            system, seed, network=UNEVEN, clients={"total": 10}, task=SORTED, training={"rounds": rounds, **PASS},
            evaluation={"every": rounds},
        )
    )  # fmt: skip
    last = found[-1].evaluation
    return sum(len(one.clients) for one in found[2:]) / (10 * (rounds - 2)), last.accuracy, min(last.class_accuracy)


ALL_OR_NOTHING = "google(over=1, window=2, least=0.05)"


@pytest.mark.slow
def test_shares_of_work_meet_deadlines_and_keep_classes_that_all_or_nothing_loses():
    for seed in range(5):
        nothing, shares = met(ALL_OR_NOTHING, seed, 30), met("decaf(deadline=2)", seed, 30)
        assert shares[0] > 0.85 and nothing[0] < 0.65
        assert shares[1] > nothing[1] + 0.08
        assert nothing[2] == 0 and shares[2] > 0.3


@pytest.mark.slow
def test_examples_that_move_make_up_for_a_large_least_share():
    alone = [met("decaf(deadline=2, least=0.5)", seed, 30) for seed in range(5)]
    moving = [met("decaf(deadline=2, least=0.5, trusted=5)", seed, 30) for seed in range(5)]
    assert sum(one[0] for one in moving) > sum(one[0] for one in alone) + 0.8
    assert sum(one[1] for one in moving) > sum(one[1] for one in alone) + 0.3


def test_shares_of_work_meet_deadlines_that_all_or_nothing_does_not():
    nothing, shares = met(ALL_OR_NOTHING, 2, 8), met("decaf(deadline=2)", 2, 8)
    assert nothing[0] < 0.4 and shares[0] > 0.75 and shares[1] > nothing[1] + 0.05
    assert met("decaf(deadline=2, least=0.5, trusted=5)", 2, 8)[0] > met("decaf(deadline=2, least=0.5)", 2, 8)[0] + 0.2


def test_the_card_says_that_a_trusted_set_is_one_party():
    told = threat_card(cell("decaf(trusted=3)"))["in_words"]
    assert told == "Nobody is malicious. Trusted sets of 3 devices are one party each, with all of their examples."
    assert threat_card(cell("decaf"))["in_words"] == "Nobody is malicious."


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("decaf", {"protocol": {"secure_aggregation": "full"}}, "Set secure_aggregation: none, or use google"),
    ("decaf", {"protocol": {"privacy": {"kind": "record", "noise_multiplier": 1.0}}}, "Leave out privacy, or use google."),
    ("decaf(trusted=2)", {"training": {"worker_momentum": 0.5}}, "has not its momentum. Set trusted: 1"),
    ("decaf(deadline=2)", {"network": {"link": {"latency": 1}}}, "no update ever comes in time. Raise deadline above that."),
    ("decaf", {"training": {"algorithm": "scaffold", "local_steps": 2}}, "decaf carries updates alone"),
]  # fmt: skip


def test_elsewhere_nobody_asks_how_quick_a_device_is():
    given: dict[str, Any] = {"clients": {"malicious": 1}, "attack": "overstated_rate"}
    assert not cell("decaf", **given).verdict.reasons
    for system in ("server", "google", "fedbuff"):
        quick, stay = cell(system, **given).verdict.reasons
        assert quick.startswith("overstated_rate lies about how quick its devices are") and quick.endswith(
            "decaf or dlion."
        )
        assert stay.startswith("overstated_rate lies about how often its devices stay") and stay.endswith("Use decaf.")


@pytest.mark.parametrize(("system", "settings", "why"), REFUSED)
def test_what_is_refused(system, settings, why):
    assert why in " ".join(cell(system, **settings).verdict.reasons)
