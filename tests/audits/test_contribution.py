"""Shapley values against their definition, and what clients contribute: honest ones, a free rider, a poisoner."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import factorial

import numpy as np
import pytest

from fedguard.bench.audits.contribution import contribution
from fedguard.contracts import Observer
from fedguard.errors import ConfigError
from fedguard.metrics.shapley import shapley
from fedguard.rng import Rng
from tests.systems.scenes import cell, scene


def game(n: int, seed: int = 0):
    """A random value for each coalition."""
    drawn = np.random.default_rng(seed).normal(size=2**n)
    return lambda coalition: float(drawn[sum(1 << player for player in coalition)])


def exact(value, n: int) -> list[float]:
    """The definition: the mean of the marginal contributions over all n! orders."""
    found = [0.0] * n
    for order in permutations(range(n)):
        for place, player in enumerate(order):
            found[player] += value(frozenset(order[: place + 1])) - value(frozenset(order[:place]))
    return [one / factorial(n) for one in found]


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_definition_within_its_own_standard_errors(seed):
    value = game(5, seed)
    found = shapley(value, range(5), Rng(seed), permutations=600)
    for player, share in enumerate(exact(value, 5)):
        assert abs(found.shares[player] - share) < 4.5 * found.errors[player]
    assert found.evaluations == 32


def test_its_standard_errors_are_the_spread_of_repetitions():
    """200 times nine orders of a lopsided game: what the shares scatter by is what each repetition says of itself."""
    value = game(5, 3)
    found = [
        shapley(lambda some: value(some) * (1 + 3 * (0 in some)), range(5), Rng(seed), permutations=9)
        for seed in range(200)
    ]
    for player in range(5):
        scatter = np.std([one.shares[player] for one in found], ddof=1)
        said = np.sqrt(np.mean([one.errors[player] ** 2 for one in found]))
        assert 0.85 < said / scatter < 1.18, player
    (once,) = {tuple(shapley(value, range(5), Rng(seed), permutations=1).errors.values()) for seed in range(3)}
    assert once == (0.0,) * 5


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.5])
def test_the_shares_add_up_to_the_total(tolerance):
    for seed in range(20):
        value = game(6, seed)
        found = shapley(value, range(6), Rng(seed), permutations=7, tolerance=tolerance)
        assert sum(found.shares.values()) == pytest.approx(value(frozenset(range(6))) - value(frozenset()), abs=1e-9)
        assert found.total == pytest.approx(sum(found.shares.values()), abs=1e-9)


@pytest.mark.parametrize("tolerance", [0.0, 0.3])
def test_who_never_changes_a_value_gets_nothing_and_equals_get_the_same(tolerance):
    base = game(4)
    idle = shapley(lambda some: base(some - {3}), range(4), Rng(0), permutations=50, tolerance=tolerance)
    assert idle.shares[3] == 0.0 and any(idle.shares.values())
    alike = shapley(lambda some: len(some) ** 2, range(5), Rng(0), permutations=4000, tolerance=tolerance)
    assert all(share == pytest.approx(5.0, abs=0.3) for share in alike.shares.values())


def test_an_additive_game_is_told_exactly_by_one_order():
    worths = [3.0, -1.0, 0.5, 0.0]
    found = shapley(lambda some: sum(worths[player] for player in some), range(4), Rng(1), permutations=1)
    assert [found.shares[player] for player in range(4)] == pytest.approx(worths)


def test_cutting_saves_evaluations_and_moves_no_share_by_more_than_the_tolerance():
    """Sixteen players of whom each adds half of what is missing: after a few of them nearly nothing is."""
    value = lambda some: 1 - 0.5 ** len(some)  # noqa: E731
    asked = [shapley(value, range(16), Rng(0), permutations=30, tolerance=one) for one in (0.0, 0.05)]
    assert asked[1].evaluations < asked[0].evaluations / 2
    assert max(abs(asked[1].shares[player] - asked[0].shares[player]) for player in range(16)) < 0.05


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"players": ()}, "players: expected each once"),
        ({"players": (1, 1)}, "players: expected each once"),
        ({"permutations": 0}, "permutations: expected at least 1; got 0."),
        ({"tolerance": 1.0}, "tolerance: expected a number in"),
    ],
)
def test_what_makes_no_sense_is_named(settings, why):
    players = settings.pop("players", (0, 1))
    with pytest.raises(ConfigError) as caught:
        shapley(len, players, Rng(0), **settings)
    assert why in str(caught.value)


# In a training.

SMALL = {"network": None, "clients": {"total": 4}, "training": {"rounds": 1}}
ONE_BAD = {**SMALL, "clients": {"total": 4, "malicious": 1}}


@pytest.mark.parametrize("measure", ["accuracy", "loss"])
def test_what_the_clients_contribute_adds_up_to_what_the_model_gained(measure):
    found = contribution(cell("server", **SMALL), measure=measure, permutations=2)
    assert abs(sum(found.shares.values()) - found.gain) < 1e-6 and found.gain > 0
    assert len(found.rounds) == 1 and found.malicious == frozenset()


@pytest.mark.parametrize("attack", ["free_rider", "label_flip", "sign_flip"])
def test_who_rides_free_or_poisons_contributes_least(attack):
    found = contribution(cell("server", attack=attack, **ONE_BAD), permutations=8)
    (bad,) = found.malicious
    assert min(found.shares, key=lambda client: found.shares[client]) == bad
    assert abs(sum(found.shares.values()) - found.gain) < 1e-6


@pytest.mark.slow
def test_under_a_robust_rule_a_poisoner_takes_less_away():
    """The median leaves it out of most coalitions, those of few excepted, which it can outvote."""
    shares = {}
    for defense in ("mean", "median"):
        settings = {**ONE_BAD, "clients": {"total": 7, "malicious": 1}, "attack": "sign_flip", "defense": defense}
        found = contribution(cell("server", **settings), permutations=20)
        (bad,) = found.malicious
        shares[defense] = found.shares[bad]
    assert shares["mean"] < shares["median"]


#: Ten times as fast in what each client computes, and half as fast: who is quick comes more often.
UNEVEN = {"compute": {"seconds": 0.01, "spread": 0.8}, "link": {"latency": 0.05}}
IN_TIME = (
    "parameter_server(ranges=3)",
    "parameter_server(consistency='eventual')",
    "fedasync",
    "fedbuff(buffer=3)",
    "google(over=1)",
)


@pytest.mark.parametrize("system", [*IN_TIME, pytest.param("decaf(deadline=60)", marks=pytest.mark.slow)])
def test_in_simulated_time_it_adds_up_too_and_a_poisoner_takes_away(system):
    settings = {**ONE_BAD, "network": UNEVEN, "training": {"rounds": 3}, "attack": "sign_flip"}
    found = contribution(cell(system, **settings), permutations=2, measure="loss")
    (bad,) = found.malicious
    assert abs(sum(found.shares.values()) - found.gain) < 1e-6
    assert found.shares[bad] < 0 and min(found.shares, key=lambda client: found.shares[client]) == bad
    assert sum(share > 0 for share in found.shares.values()) >= 2


def test_where_each_update_is_an_aggregate_its_client_has_what_the_model_gained_by_it():
    """No order is drawn, and nothing is estimated: the gains of a plain walk along the models."""
    made, setup = scene("parameter_server(consistency='eventual')", **{**SMALL, "network": UNEVEN})
    found = contribution(made, permutations=1)
    gained, model = dict.fromkeys(range(4), 0.0), setup.task.initial_model(setup.rng.child("model"))
    for report in made.architecture.aggregates(setup):
        (client,) = report.clients
        gained[client] += setup.task.evaluate(report.model).accuracy - setup.task.evaluate(model).accuracy
        model = report.model
    assert found.shares == pytest.approx(gained, abs=1e-9)
    assert all(error == 0 for error in found.errors.values()) and len(found.rounds) == 4


def test_of_a_buffer_of_two_either_the_first_or_the_second_is_given_what_it_is_worth_alone():
    """By the formula: in the order (i, j) i has U(w + s_i u_i) - U(w), and j the rest of what the mean of both gains."""
    made, setup = scene("fedbuff(buffer=2)", **{**SMALL, "network": UNEVEN, "training": {"rounds": 2}})
    found = contribution(made, permutations=1, measure="loss")
    watched = replace(setup, observer=Observer(None))
    aged = set()
    for shares, report in zip(found.rounds, made.architecture.aggregates(watched), strict=True):
        (one,) = report.watched
        aged |= {training.staleness for training in one.sent.trainings}
        loss = setup.task.evaluate(one.sent.model).loss
        alone = [loss - setup.task.evaluate(one.sent.model + row).loss for row in one.sent.updates]
        both = loss - setup.task.evaluate(one.sent.model + one.sent.updates.mean(0)).loss
        if one.sent.senders[0] == one.sent.senders[1]:
            assert shares.shares[one.sent.senders[0]] == pytest.approx(both, abs=1e-6)
            continue
        orders = [(alone[0], both - alone[0]), (both - alone[1], alone[1])]
        assert any(
            [shares.shares[client] for client in one.sent.senders] == pytest.approx(list(order), abs=1e-6)
            for order in orders
        )
    assert max(aged) > 0, "some are weighed by their age"


def worth(attack: str, pace: float, seed: int, system: str = "parameter_server(consistency='eventual')"):
    """What an honest and a malicious client of ten is worth on average, where two of them answer at this pace."""
    network = {
        "compute": {"seconds": 0.01, "spread": 0.3, "jitter": 0.3},
        "link": {"latency": 0.1},
        "malicious_pace": pace,
    }
    training = {"rounds": 5, "batch_size": 16}
    clients = {"total": 10, "malicious": 2}
    made = cell(system, attack=attack, clients=clients, training=training, network=network)
    found = contribution(made, seed, permutations=10)
    sides = {
        side: [found.shares[one] for one in found.shares if (one in found.malicious) is side] for side in (False, True)
    }
    return [sum(side) / len(side) for side in sides.values()]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_where_nobody_waits_haste_buys_value_and_does_not_make_a_poisoner_worth_anything(seed):
    """Who sends its old updates again, ten times as often, is worth more than an honest client, which it was not before."""
    honest, malicious = worth("stale(delay=3)", 0.1, seed)
    slow_honest, slow_malicious = worth("stale(delay=3)", 1.0, seed)
    assert malicious > 1.5 * honest and malicious > slow_malicious
    assert worth("label_flip", 0.1, seed)[1] < 0
    assert worth("free_rider", 0.1, seed)[1] <= 1.2 * slow_honest


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"architecture": "basgd(buffers=2)"}, "a server that sees each, and basgd has none"),
        ({"architecture": "mapreduce(combiners=2)"}, "a server that sees each, and mapreduce has none"),
        ({"architecture": "all_reduce"}, "a server that sees each, and all_reduce has none"),
        (
            {"architecture": "fedbuff(buffer=3)", "protocol": {"secure_aggregation": "full"}},
            "secure_aggregation hides them",
        ),
        (
            {"architecture": "fedbuff(buffer=2)", "training": {"rounds": 1, "server_momentum": 0.5}},
            "more than the aggregate",
        ),
        ({"protocol": {"secure_aggregation": "full"}}, "secure_aggregation hides them"),
        ({"training": {"rounds": 1, "server_momentum": 0.5}}, "moved by more than the aggregate"),
        ({"defense": "krum", "clients": {"total": 4, "malicious": 2}, "attack": "ipm"}, "krum needs"),
    ],
)
def test_where_nobody_can_tell_it_is_refused(settings, why):
    with pytest.raises(ConfigError) as caught:
        contribution(cell(**{"architecture": "server", **SMALL, **settings}))
    assert str(caught.value).startswith("contribution: ") and why in str(caught.value)
