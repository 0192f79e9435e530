"""Distributed differential privacy as a whole: what clients send, and what it costs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedguard.errors import ConfigError, InputError, UnknownName
from fedguard.privacy.accounting import ORDERS, convert_rdp
from fedguard.privacy.calibration import calibrate, minimum
from fedguard.privacy.distributed import DistributedDP
from fedguard.secagg.entropy import expand_seed
from tests.privacy.laws import chi_square, gaussian_log_pmf, log_convolved, skellam_log_pmf

MECHANISMS = ["skellam", "discrete_gaussian"]


def plan(mechanism="skellam", **changes):
    return DistributedDP(**{"mechanism": mechanism, "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5} | changes)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_noisy_sum_has_the_right_law(mechanism):
    """Three clients: roundings and noise of one coordinate convolved exactly, against 30 sums of 100 alike."""
    one = plan(mechanism, clip=10.0, noise_multiplier=0.09).for_round(contributors=3, dim=100, scale=4.0)
    assert one.noise.sigma == pytest.approx(0.9 * 4 / math.sqrt(3))
    inputs, entropy = [0.3, -0.65, 2.0], expand_seed(b"sum")  # the last is clipped to 1
    sums = sum(np.concatenate([one.encode(np.full(100, x), entropy) for _ in range(30)]) for x in inputs)
    reach = 60
    sigma = one.noise.sigma
    share = skellam_log_pmf(sigma**2, reach) if mechanism == "skellam" else gaussian_log_pmf(sigma, reach)
    law = np.exp(log_convolved(share, 3))
    for x in (1.2, -2.6, 4.0):
        below = math.floor(x)
        step = np.zeros(2 * 5 + 1)
        step[5 + below], step[5 + below + 1] = 1 - (x - below), x - below
        law = np.convolve(law, step)
    assert chi_square(sums, law) > 0.001
    assert chi_square(sums + 1, law) < 1e-6


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_noise_of_all_adds_up_to_the_multiplier_times_the_clip(mechanism):
    dim, clients, scale, rng = 4000, 10, 2.0**12, np.random.default_rng(0)
    one = plan(mechanism, clip=2.0, noise_multiplier=0.5).for_round(contributors=clients, dim=dim, scale=scale)
    inputs = rng.standard_normal((clients, dim)).astype(np.float32)
    clipped = inputs / np.maximum(1, np.linalg.norm(inputs.astype(float), axis=1, keepdims=True) / 2.0)
    total = sum(one.encode(row, expand_seed(b"%d" % u)) for u, row in enumerate(inputs))
    error = total / scale - clipped.sum(0)
    assert abs(error.std() / (0.5 * 2.0) - 1) < 4 / math.sqrt(2 * dim)
    assert abs(error.mean()) < 4 / math.sqrt(dim)
    assert abs(total).max() <= clients * 2.0 * scale + one.noise_tail(clients)
    # On the ring of 2^32 the same sum comes out, from unsigned words that wrap.
    ring = np.zeros(dim, np.uint32)
    for u, row in enumerate(inputs):
        ring += one.encode(row, expand_seed(b"%d" % u)).astype(np.uint32)
    assert (ring.view(np.int32) == total).all()


def test_what_leaves_the_client_is_bounded_whatever_comes_in():
    """Without the noise no vector of integers is longer than the sensitivity that the accountant assumes."""
    one = plan(clip=3.0).for_round(contributors=5, dim=50, scale=7.0)
    rng, entropy = np.random.default_rng(0), expand_seed(b"bounded")
    for size in (0.0, 1e-30, 0.1, 1.0, 50.0, 1e30, 1e150):
        vector = rng.standard_normal(50) * size
        rounded = one.encode(vector, expand_seed(b"x")) - one.noise.sample(50, _after_rounding(one, vector))
        assert rounded @ rounded <= one.rounding.bound
        assert np.abs(rounded).sum() <= one.rounding.l1
    assert (one.encode(np.ones(50), entropy) != one.encode(np.ones(50), entropy)).any()


def _after_rounding(one, vector):
    """The entropy of `expand_seed(b"x")` after the rounding has drawn from it."""
    entropy = expand_seed(b"x")
    length = np.linalg.norm(vector)
    one.rounding(vector * (one.scale * min(1.0, one.clip / length) if length else 0.0), entropy)
    return entropy


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_dropped_noise_raises_epsilon(mechanism):
    """30 % dropouts leave 70 % of the variance; epsilon rises from 1.54 to 1.87, as it does for Gaussian noise."""
    rounds, dim, scale = 10, 1000, 2.0**16
    calibrated = calibrate(plan(mechanism), epsilon=1.54, rounds=rounds, contributors=100, dim=dim, scale=scale)
    spent = [
        calibrated.account_rounds([k] * rounds, expected=100, dim=dim, scale=scale).value
        for k in (100, 90, 70, 40, 1, 0)
    ]
    assert all(fewer > more for more, fewer in itertools.pairwise(spent))
    assert spent[0] == pytest.approx(1.54, abs=1e-4)
    assert spent[2] == pytest.approx(1.873, abs=2e-3)
    assert spent[-1] == math.inf
    # Only the rounds in which clients dropped out cost more.
    mixed = calibrated.account_rounds([100] * 9 + [70], expected=100, dim=dim, scale=scale).value
    assert spent[0] < mixed < spent[2]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("relation", ["add/remove", "replace"])
def test_with_a_fine_grid_it_is_the_central_gaussian(mechanism, relation):
    """a D^2 / (2 sigma^2) with the total noise; coarser grids cost more, and the price falls with the scale."""
    distance = 2 if relation == "replace" else 1
    dp = plan(mechanism, clip=0.7, noise_multiplier=4.0, relation=relation)
    central = convert_rdp(20 * ORDERS * distance**2 / (2 * 4.0**2), 1e-5)
    surplus = [
        dp.account_rounds([50] * 20, expected=50, dim=10_000, scale=2.0**bits / 0.7).value / central - 1
        for bits in (6, 9, 12, 18)
    ]
    assert all(finer < coarser for coarser, finer in itertools.pairwise(surplus))
    assert 0 < surplus[-1] < 1e-4
    assert surplus[0] > 0.1


def test_the_least_number_of_contributors():
    dp = calibrate(plan(), epsilon=2.0, rounds=30, contributors=60, dim=500, scale=2.0**14)
    where = {"rounds": 30, "dim": 500, "scale": 2.0**14}

    def spent(k):
        return dp.account_rounds([k] * 30, expected=60, dim=500, scale=2.0**14).value

    assert minimum(dp, epsilon=2.0, expected=60, **where) == 60
    least = minimum(dp, epsilon=2.5, expected=60, **where)
    assert spent(least) <= 2.5 < spent(least - 1)
    assert minimum(dp, epsilon=1e6, expected=60, **where) == 1
    with pytest.raises(ConfigError, match=r"30 rounds with 60 contributors spend 2; expected at most 1.9"):
        minimum(dp, epsilon=1.9, expected=60, **where)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_calibration_hits_its_target_from_below(mechanism):
    where = {"rounds": 5, "contributors": 20, "dim": 3000, "scale": 2.0**13}
    noises = []
    for epsilon in (0.05, 1.0, 8.0):
        dp = calibrate(plan(mechanism), epsilon=epsilon, **where)
        value = dp.account_rounds([20] * 5, expected=20, dim=3000, scale=2.0**13).value
        assert epsilon * (1 - 1e-4) < value <= epsilon
        noises.append(dp.noise_multiplier)
    assert noises[0] > noises[1] > noises[2]
    replaced = calibrate(plan(mechanism, relation="replace"), epsilon=1.0, **where)
    assert replaced.noise_multiplier == pytest.approx(2 * noises[1], rel=1e-3)


def test_what_a_round_says_of_itself():
    """C S = 6, d = 4, beta = exp(-1/2): B = 36 + 1 + 7, D2 = sqrt(44), D1 = sqrt(4 * 44); mu = 5 * (2 * 6)^2 / 9 = 80."""
    one = plan(clip=1.5, noise_multiplier=2.0).for_round(contributors=9, dim=4, scale=4.0)
    event = one.event(5, count=3)
    assert (event.mechanism, event.count, event.unit, event.sampling) == ("skellam", 3, "client", "none")
    found = event.rdp(np.array([2.0, 7.0]))
    assert found == pytest.approx(
        [
            a * 44 / 160 + min(((2 * a - 1) * 44 + 6 * math.sqrt(176)) / (4 * 6400), 3 * math.sqrt(176) / 160)
            for a in (2, 7)
        ]
    )
    # Of each coordinate the tail is a quarter as likely, so that all four stay within it.
    assert one.noise_tail(9, 1e-6) == one.noise.noise_tail(9, 0.25e-6) > one.noise.noise_tail(9, 1e-6)


def test_the_smallest_noise_is_kept_where_it_is_enough():
    dp = calibrate(plan("discrete_gaussian"), epsilon=1e9, rounds=1, contributors=4, dim=2, scale=8.0)
    assert dp.for_round(contributors=4, dim=2, scale=8.0).noise.sigma == pytest.approx(0.5)


def test_targets_out_of_reach_are_refused():
    where = {"contributors": 10, "dim": 100, "scale": 2.0**28}
    with pytest.raises(ConfigError, match=r"0.001 at delta = 1e-05 is out of reach for skellam over 1000 rounds"):
        calibrate(plan(), epsilon=0.001, rounds=1000, **where)
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="epsilon"):
            calibrate(plan(), epsilon=epsilon, rounds=1, **where)
    with pytest.raises(ConfigError, match="rounds"):
        calibrate(plan(), epsilon=1.0, rounds=0, **where)


def test_errors():
    with pytest.raises(UnknownName, match="skellam"):
        plan("skelam")
    for change in (
        {"clip": 0.0},
        {"clip": math.inf},
        {"noise_multiplier": 0.0},
        {"delta": 0.0},
        {"delta": 1.0},
        {"beta": 1.0},
        {"relation": "add"},
    ):
        with pytest.raises(ConfigError, match=next(iter(change))):
            plan(**change)
    with pytest.raises(ConfigError, match="contributors"):
        plan().for_round(contributors=0, dim=1, scale=1.0)
    with pytest.raises(ConfigError, match="scale"):
        plan().for_round(contributors=1, dim=1, scale=0.0)
    with pytest.raises(ConfigError, match=r"from 0.5 .* got 0.1. Raise the encoding's bits"):
        plan("discrete_gaussian").for_round(contributors=100, dim=1, scale=1.0)
    one = plan().for_round(contributors=1, dim=2, scale=10.0)
    for vector in (
        np.ones(3),
        np.ones((2, 1)),
        np.array([1.0, np.nan]),
        np.array([np.inf, 0.0]),
        np.array([1e200, 0.0]),
    ):
        with pytest.raises(InputError, match="expected 2 finite numbers"):
            one.encode(vector)
    with pytest.raises(ConfigError, match="at least one"):
        plan().account_rounds([], expected=1, dim=1, scale=10.0)


def test_what_an_epsilon_rests_on_is_said():
    text = plan(relation="replace").account_rounds([5], expected=5, dim=10, scale=100.0).describe()
    assert "relation: replace" in text
    assert "unit: client" in text
    assert "noisy sum" in text
    assert "honest" in text
    assert "zeros" not in text
    assert "zeros" in plan().account_rounds([5], expected=5, dim=10, scale=100.0).describe()
