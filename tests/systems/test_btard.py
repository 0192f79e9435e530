"""BTARD: each part by the rule at its node; who lies is found by validators and banned, and the accuracy comes back."""

from __future__ import annotations

from itertools import count, islice

import pytest
import torch

from fedguard.architectures.collectives.butterfly import butterfly
from fedguard.architectures.systems import btard
from fedguard.architectures.systems.btard import BTARD, accuses, resolve_accusation
from tests.systems.scenes import cell, models, off, reports, scene

TEN = {"clients": {"total": 10, "malicious": 3}, "training": {"rounds": 30}, "evaluation": {"every": 30}}


def bans(system, seed=0, **settings):
    """By node: the round in which it was banned; and who is malicious."""
    made, setup = scene(system, seed, **settings)
    found = {node: report.round for report in made.architecture.run(setup) for node in report.banned}
    return found, setup.malicious


@pytest.mark.parametrize("defense", ["mean", "trimmed_mean", "median"])
def test_rules_by_coordinate_do_not_know_parts(defense):
    """Where nobody lies it is the server, to the last bit."""
    settings = {"defense": defense, "clients": {"assumed_f": 1}}
    assert torch.equal(models("btard", **settings), models(**settings))


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"algorithm": "fedprox", "mu": 0.1}, {"server_momentum": 0.5}])
def test_it_is_the_server_however_nodes_train(settings):
    assert torch.equal(models("btard", training=settings), models(training=settings))


@pytest.mark.parametrize(("attack", "malicious"), [("none", 0), ("sign_flip", 2)])
def test_node_j_aggregates_part_j_by_itself(attack, malicious, monkeypatch):
    """Centred clipping of each part, as a plain loop, from the part's own last aggregate, or from 0 once parts are cut anew."""
    tau, kept = 0.05, []
    received = btard.CheckedRun.receive_updates

    def kept_back(self, sent):
        found = received(self, sent)
        kept.append(found.rows.clone())
        return found

    monkeypatch.setattr(btard.CheckedRun, "receive_updates", kept_back)
    settings = {
        "defense": f"centered_clipping(tau={tau})",
        "training": {"rounds": 6},
        "clients": {"malicious": malicious},
    }
    found = models("btard(validators=2)", attack=attack, **settings)
    center, before = torch.zeros(650, dtype=torch.float64), 6
    for round, rows in enumerate(kept):
        if len(rows) != before:
            center, before = torch.zeros(650, dtype=torch.float64), len(rows)
        for cut in butterfly(len(rows)).cuts(650):
            away = rows[:, cut].double() - center[cut]
            center[cut] += (away * (tau / away.norm(dim=1)).clamp(max=1)[:, None]).mean(0)
        assert torch.allclose((found[round + 1] - found[round]).double(), center, atol=1e-6), round
    assert (len(kept[-1]) < 6) == bool(malicious)
    if not malicious:
        assert off(found, models(**settings)) > 0.01  # the whole clipped at once is another thing


@pytest.mark.parametrize(
    "attack", ["sign_flip", "ipm(tau=0.1)", "alie", "label_flip", "partial_sum", "false_accusation", "free_rider"]
)
def test_who_lies_is_banned_and_nobody_else(attack):
    found, malicious = bans("btard(validators=4)", attack=attack, **TEN | {"training": {"rounds": 15}})
    assert found.keys() == malicious


def test_honest_nodes_are_never_banned():
    found, _ = bans("btard(validators=5)", **TEN | {"clients": {"total": 10}})
    assert found == {}


@pytest.mark.parametrize("attack", ["sign_flip(scale=10)", "partial_sum(scale=5)"])
def test_the_accuracy_comes_back(attack):
    """Unlike that of an all-reduce, in which a wrong sum stays unattributable."""
    settings = TEN | {"training": {"rounds": 40}, "evaluation": {"every": 1}}
    found = list(reports("btard(validators=3)", attack=attack, **settings))
    accuracy = [report.evaluation.accuracy for report in found]
    assert min(accuracy[:5]) < 0.5 < 0.85 < accuracy[-1]
    unchecked = list(reports("all_reduce", attack=attack, **TEN | {"training": {"rounds": 40}}))
    assert unchecked[-1].evaluation.accuracy < 0.3


def test_a_lone_liar_is_banned_after_n_over_m_rounds_on_average():
    """The round of the ban is geometric with p = m/n = 1/3: mean 3, deviation 2.45; over 30 seeds within four deviations."""
    settings = {"clients": {"malicious": 1}, "training": {"rounds": 40, "lr": 1e-3}, "evaluation": {"every": 40}}
    rounds = []
    for seed in range(30):
        run = reports("btard(validators=2)", seed, attack="sign_flip", **settings)
        rounds.append(next(report.round for report in run if report.banned))
    assert abs(sum(rounds) / 30 - 3) < 4 * 2.45 / 30**0.5
    assert len(set(rounds)) > 3


def test_who_checks_whom_is_drawn_evenly():
    """Of n (n - 1) pairs each is drawn in m rounds of n (n - 1) for each validator, within five deviations."""
    setup = scene("btard(validators=2)")[1]
    run, n, m, rounds = BTARD(validators=2).start(setup), 6, 2, 6000
    pairs = [pair for round in range(rounds) for pair in run.checks(round, range(n))]
    assert len(pairs) == m * rounds
    assert all(len({*one, *other}) == 4 for one, other in zip(pairs[::2], pairs[1::2], strict=True))
    p = m / (n * (n - 1))
    for i in range(n):
        for j in range(n):
            expected = rounds * p * (i != j)
            assert abs(pairs.count((i, j)) - expected) <= 5 * (rounds * p * (1 - p)) ** 0.5 * (i != j)
    assert run.checks(1, [4]) == []


def test_hostile_validators_shield_each_other():
    """Of 10 nodes, 4 hostile, the chance that one is found in a round is (m/n) (n - f)/(n - 1): counted from the draws."""
    setup = scene("btard(validators=5)", clients={"total": 10})[1]
    run, hostile, rounds = BTARD(validators=5).start(setup), {0, 1, 2, 3}, 4000
    found = sum(
        accuses(one in hostile, other in hostile, other in hostile, slander=False)
        for round in range(rounds)
        for one, other in run.checks(round, range(10))
        if other == 0
    )
    chance = 5 / 10 * 6 / 9
    assert abs(found - rounds * chance) < 4 * (rounds * chance * (1 - chance)) ** 0.5


@pytest.mark.parametrize(
    ("accuser", "accused", "guilty", "majority", "banned"),
    [
        (1, 7, True, True, 7),  # an honest node accuses a liar
        (7, 1, False, True, 7),  # a liar accuses an honest node
        (1, 7, True, False, 1),  # the same where liars are the majority
        (7, 1, False, False, 1),
    ],
)
def test_accuser_or_accused_is_banned(accuser, accused, guilty, majority, banned):
    assert resolve_accusation(accuser, accused, guilty, {7, 8}, majority) == banned


def test_whether_one_accuses():
    assert accuses(False, True, True, False) and not accuses(False, False, False, True)
    assert not accuses(True, True, True, True) and accuses(True, False, False, True)


def test_a_majority_of_liars_bans_the_honest():
    found, malicious = bans(
        "btard(validators=4)", attack="sign_flip", **TEN | {"clients": {"total": 10, "malicious": 6}}
    )
    first = sorted(found, key=found.__getitem__)[:4]
    assert not set(first) & malicious


def test_who_sends_nothing_takes_one_other_with_it():
    """Word against word: both go, so that no node can rid itself of more than one."""
    found, malicious = bans("btard", attack="dropout", **TEN)
    assert malicious < found.keys() and len(found) == 2 * len(malicious) and set(found.values()) == {1}


def test_what_is_not_finite_is_seen_by_all():
    found, malicious = bans("btard", attack="nan", **TEN)
    assert found == dict.fromkeys(malicious, 1)


MAJORITY = TEN | {"attack": "sign_flip", "clients": {"total": 10, "malicious": 6}}


def test_liars_that_have_banned_the_honest_go_on_and_move_nothing():
    """There is no honest update left to reverse."""
    made, setup = scene("btard(validators=4)", **MAJORITY)
    found = list(made.architecture.run(setup))
    assert {node for report in found for node in report.banned} == set(range(10)) - setup.malicious
    assert set(found[-1].chosen) == setup.malicious and not found[-1].not_finite and found[-1].abandoned is None
    assert torch.equal(found[-1].model, found[-2].model)


def test_a_round_in_which_nobody_is_left_changes_nothing(monkeypatch):
    """Liars have banned the honest, and then send what is not finite, for which they are banned themselves."""
    from fedguard.attacks.poisoning.sign_flip import SignFlip

    craft = SignFlip.craft
    monkeypatch.setattr(
        SignFlip, "craft", lambda self, view: craft(self, view) * (1 if len(view.honest) else torch.nan)
    )
    found = list(reports("btard(validators=4)", **MAJORITY))
    assert sorted(node for report in found for node in report.banned) == list(range(10))
    last = found[-1]
    assert last.chosen == () and last.abandoned == "no update reached the server"
    assert torch.equal(last.model, found[-2].model)


def test_a_part_that_is_not_finite_is_seen_by_all(monkeypatch):
    from fedguard.attacks.poisoning.partial_sum import PartialSum

    monkeypatch.setattr(PartialSum, "add", lambda self, nothing, view, crafted: torch.full_like(crafted, torch.inf))
    found = list(reports("btard", attack="partial_sum", **TEN))
    malicious = scene("btard", attack="partial_sum", **TEN)[1].malicious
    assert set(found[0].banned) == malicious and found[0].abandoned == "the part of 3 of 10 nodes was not finite"
    assert found[-1].evaluation.accuracy > 0.85 and not any(report.abandoned for report in found[1:])


def test_the_banned_have_no_part_in_later_rounds_and_stand_in_the_record():
    from fedguard.metrics.trajectory import summarize

    found = list(reports("btard(validators=5)", attack="sign_flip", **TEN))
    gone: set[int] = set()
    for report in found:
        assert not gone & set(report.chosen) and len(report.chosen) == 10 - len(gone)
        gone |= set(report.banned)
    said = summarize(found)["rounds"]["bans"]
    assert {(one["client"], one["malicious"]) for one in said} == {(node, True) for node in gone}
    assert "bans" not in summarize(list(islice(reports("btard"), 4)))["rounds"]


def test_bytes_are_parts_hashes_and_what_validators_ask_for():
    last = list(reports("btard(validators=2)", training={"rounds": 1}))[-1]
    n, d, m = 6, 650, 2
    sizes = [d // n + (part < d % n) for part in range(n)]
    parts = sum(d - size for size in sizes) + sum((n - 1) * size for size in sizes)
    asked = m * (n - 1) * -(-d // n)
    assert last.moment.bytes_up == last.moment.bytes_down == 4 * (parts + asked) + 32 * n * (n - 1) * (n + 1)
    assert 4 * parts == 4 * 2 * d * (n - 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"architecture": "btard(validators=4)"}, "Lower validators of btard"),
        ({"training": {"worker_momentum": 0.5}}, "Set training.worker_momentum: 0"),
        (
            {"protocol": {"privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0}}},
            "train on the examples of others",
        ),
        ({"defense": "fltrust", "server": {"root_data": 50}}, "of which each node of btard has a part"),
        ({"clients": {"per_round": 3}}, "Set clients.per_round: 1.0"),
        ({"protocol": {"secure_aggregation": "full"}, "clients": {"total": 12}}, "btard has none"),
    ],
)
def test_what_does_not_fit_is_refused(settings, reason):
    reasons = cell(**({"architecture": "btard"} | settings)).verdict.reasons
    assert any(reason in one for one in reasons), reasons


@pytest.mark.parametrize("system", ["server", "all_reduce"])
def test_nobody_is_accused_where_nobody_checks(system):
    reasons = cell(system, attack="false_accusation", clients={"malicious": 1}).verdict.reasons
    assert reasons == (
        f"false_accusation lies about what other nodes did, and {system} does not go by that here. Use btard.",
    )


# A test that cannot fail is no test.


@pytest.mark.parametrize("fault", ["validators are asleep", "an innocent is convicted", "a wrong part passes"])
def test_a_fault_is_seen(fault, monkeypatch):
    if fault == "validators are asleep":
        monkeypatch.setattr(btard, "accuses", lambda *_: False)
    elif fault == "an innocent is convicted":
        numbers = count()
        monkeypatch.setattr(btard, "_differs", lambda *_: next(numbers) % 7 == 0)
    else:
        differs = btard._differs
        monkeypatch.setattr(btard, "_differs", lambda one, other: len(one) > 100 and differs(one, other))
    attack = "partial_sum" if fault == "a wrong part passes" else "sign_flip"
    found, malicious = bans("btard(validators=4)", attack=attack, **TEN | {"training": {"rounds": 15}})
    assert found.keys() != malicious


# The check by sums.

CLIPPED = {"defense": "centered_clipping"}
NEVER = {"clients": {"total": 10, "malicious": 0}}


@pytest.mark.parametrize("defense", ["mean", "centered_clipping", "centered_clipping(tau=0.05)"])
@pytest.mark.parametrize("partition", ["iid", "label_sorted"])
def test_sums_of_honest_nodes_add_up(defense, partition):
    """In ten rounds of ten nodes none of 100 parts is ever off, and the training is the same to the last bit."""
    settings = TEN | NEVER | {"training": {"rounds": 10}, "defense": defense, "task": {"partition": partition}}
    both = zip(reports("btard(sums=True)", **settings), reports("btard", **settings), strict=True)
    for number, (summed, plain) in enumerate(both, 1):
        assert summed.banned == () and torch.equal(summed.model, plain.model), number
    assert number == 10


@pytest.mark.parametrize("defense", ["mean", "centered_clipping", "centered_clipping(tau=0.05)"])
@pytest.mark.parametrize("attack", ["partial_sum", "partial_sum(scale=0.001)"])
def test_a_wrong_part_is_found_in_the_round_in_which_it_is_made_and_does_no_harm(attack, defense):
    settings = TEN | {"training": {"rounds": 10}, "attack": attack, "defense": defense}
    found, malicious = bans("btard(sums=True)", **settings)
    assert found == dict.fromkeys(malicious, 1)
    assert {*bans("btard", **settings)[0].values()} != {1}
    first = {"training": {"rounds": 1}}
    clean = models("btard", **settings | first | {"attack": "none"})
    assert off(models("btard(sums=True)", **settings | first), clean) < 1e-5


def test_a_part_that_its_own_node_covers_is_left_to_the_validators():
    """Found when a validator repeats what it should have told: in the same rounds as without sums."""
    covered, malicious = bans("btard(validators=4, sums=True)", attack="covered_sum", **TEN)
    assert covered == bans("btard(validators=4)", attack="partial_sum", **TEN)[0]
    assert covered.keys() == malicious and set(covered.values()) != {1}


def test_pulls_are_those_of_the_formula():
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    center = torch.tensor([1.0, -1, 0, 2]).double()
    for tau in (0.5, None, float("inf")):
        lengths = sorted(
            sum((float(x) - float(c)) ** 2 for x, c in zip(row, center, strict=True)) ** 0.5 for row in rows
        )
        most = lengths[2] if tau is None else tau
        for row, pull in zip(rows, btard.clip_deviations(rows, center, tau), strict=True):
            away = [float(x) - float(c) for x, c in zip(row, center, strict=True)]
            length = sum(one * one for one in away) ** 0.5
            assert pull.tolist() == pytest.approx([one * min(1, most / length) for one in away], rel=1e-6)


def test_a_majority_of_liars_makes_any_sum_pass():
    found, malicious = bans(
        "btard(sums=True)", attack="partial_sum", **TEN | {"clients": {"total": 10, "malicious": 6}}
    )
    assert not {node for node, round in found.items() if round == 1} & malicious


def test_sums_cost_two_numbers_of_each_part_to_all():
    with_sums, without = (list(reports(name, training={"rounds": 1}))[-1] for name in ("btard(sums=True)", "btard"))
    assert with_sums.moment.bytes_up - without.moment.bytes_up == 6 * 5 * 6 * 2 * 4


@pytest.mark.parametrize("defense", ["median", "centered_clipping(steps=3)", "nnm >> mean"])
def test_sums_of_what_does_not_add_up_are_refused(defense):
    (reason,) = cell("btard(sums=True)", defense=defense).verdict.reasons
    assert "Use mean, or centered_clipping with steps: 1" in reason


def test_nobody_lies_about_sums_that_are_not_asked_for():
    reasons = cell("all_reduce", attack="covered_sum", clients={"malicious": 1}).verdict.reasons
    assert reasons == ()  # it passes sums on there, which is a lie that is heard
    reasons = cell("server", attack="covered_sum", clients={"malicious": 1}).verdict.reasons
    assert any("lies about its share of a check by sums" in reason for reason in reasons)


@pytest.mark.parametrize("slow", range(6))
def test_a_validator_repeats_a_training_at_its_own_speed(slow):
    """A device 50 times as slow as the others, which take 1 s: all wait for it once, and again where it is the validator."""
    even = {"compute": {"seconds": 1 / 240}}
    network = {"compute": {"seconds": 1 / 240, "slow": {"devices": [slow], "factor": 50}}}
    made, setup = scene("btard", network=network)
    work = [size / 240 for size in setup.task.sizes]
    run, before = made.architecture.start(setup), 0.0
    for report in run.reports():
        ((checker, checked),) = run.checks(report.round, range(6))
        trains = max(seconds * (50 if node == slow else 1) for node, seconds in enumerate(work))
        assert report.moment.seconds - before == pytest.approx(trains + work[checked] * (50 if checker == slow else 1))
        before = report.moment.seconds
    assert list(reports("btard", network=even))[-1].moment.seconds < before / 10
