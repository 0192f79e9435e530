"""Shapley values against their definition, and what clients contribute: honest ones, a free rider, a poisoner."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np
import pytest

from fedguard.bench.audits.contribution import contribution
from fedguard.errors import ConfigError
from fedguard.metrics.shapley import shapley
from fedguard.rng import Rng
from tests.systems.scenes import cell


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


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"architecture": "fedbuff"}, "rounds of server are valued, and the architecture is fedbuff"),
        ({"protocol": {"secure_aggregation": "full"}}, "secure_aggregation hides them"),
        ({"training": {"rounds": 1, "server_momentum": 0.5}}, "moved by more than the aggregate"),
        ({"defense": "krum", "clients": {"total": 4, "malicious": 2}, "attack": "ipm"}, "krum needs"),
    ],
)
def test_where_nobody_can_tell_it_is_refused(settings, why):
    with pytest.raises(ConfigError) as caught:
        contribution(cell(**{"architecture": "server", **SMALL, **settings}))
    assert str(caught.value).startswith("contribution: ") and why in str(caught.value)
