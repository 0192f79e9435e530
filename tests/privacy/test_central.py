"""Client-level differential privacy at the server: the mechanism by hand, its clip, and what it costs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from fedguard.contracts import Participation
from fedguard.errors import ConfigError
from fedguard.privacy.central import AdaptiveClip, CentralDP, CentralState
from fedguard.privacy.kinds.client import Bands, ClientNoise, central
from fedguard.rng import Rng


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Of the Gaussian mechanism with a shift of mu standard deviations (Balle and Wang, ICML 2018)."""

    def excess(epsilon):
        log_second = epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(log_second) - delta

    return float(brentq(excess, 0, 500))


def updates(n, dim=50, seed=0):
    lengths = torch.linspace(0.2, 3.0, n)[:, None]
    rows = torch.randn(n, dim, generator=Rng(seed).torch())
    return rows / rows.norm(dim=1, keepdim=True) * lengths


# The mechanism


def test_a_round_is_the_clipped_sum_with_noise_over_the_public_number():
    mechanism, rows = CentralDP(noise_multiplier=0.7, expected=20, clip=1.5), updates(13)
    released, _ = mechanism.release(rows, mechanism.start(), Rng(3))
    total = torch.zeros(50, dtype=torch.float64)
    for row in rows.double():
        total += row * min(1.0, 1.5 / float(row.norm()))
    noise = 0.7 * 1.5 * torch.randn(50, generator=Rng(3).child("noise").torch())
    assert torch.allclose(released.double(), (total + noise) / 20, atol=1e-6)


def test_neighboring_rounds_differ_by_one_clipped_update_and_nothing_else():
    mechanism, rows = CentralDP(noise_multiplier=1.0, expected=10, clip=1.0), updates(12)
    rows[4] *= 1e6
    everyone, _ = mechanism.release(rows, mechanism.start(), Rng(0))
    for left_out in range(12):
        others, _ = mechanism.release(torch.cat([rows[:left_out], rows[left_out + 1 :]]), mechanism.start(), Rng(0))
        expected = rows[left_out] * min(1.0, 1.0 / float(rows[left_out].norm())) / 10
        assert torch.allclose(everyone - others, expected, atol=1e-6)
        assert float((everyone - others).norm()) <= 0.1 + 1e-6


def test_a_round_to_which_nobody_came_shows_noise_of_the_stated_law():
    mechanism = CentralDP(noise_multiplier=0.8, expected=5, clip=2.0)
    noise, _ = mechanism.release(torch.empty(0, 20_000), mechanism.start(), Rng(1))
    other, _ = mechanism.release(torch.empty(0, 20_000), mechanism.start(), Rng(2))
    for one in (noise, other):
        squares = float((one.double() * 5 / (0.8 * 2.0)).square().sum())
        assert 1e-4 < chi2.cdf(squares, len(one)) < 1 - 1e-4
    assert abs(float(torch.corrcoef(torch.stack([noise, other]))[0, 1])) < 4 / math.sqrt(20_000)


def test_correlated_noise_has_the_covariance_of_the_inverse():
    mechanism, rounds, dim = CentralDP(noise_multiplier=1.0, expected=1, clip=2.0, bands=3), 6, 40_000
    state, rows = mechanism.start(), []
    for round in range(rounds):
        released, state = mechanism.release(torch.empty(0, dim), state, Rng(0).child(round))
        rows.append(released.numpy() / 2.0)
    c = np.zeros((rounds, rounds))
    for j, coefficient in enumerate((1.0, 0.5, 0.375)):
        c += coefficient * np.eye(rounds, k=-j)
    expected = np.linalg.inv(c.T @ c)
    found = np.array(rows) @ np.array(rows).T / dim
    deviation = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / dim)
    assert (np.abs(found - expected) < 5 * deviation).all()


# The adaptive clip


def follow(clip: AdaptiveClip, lengths, rounds=150, noise_multiplier=1.0, silent=0) -> list[float]:
    """The clips of some rounds in which the lengths stay the same."""
    mechanism = CentralDP(noise_multiplier=noise_multiplier, expected=len(lengths) + silent, clip=clip)
    rows, state, clips = torch.zeros(len(lengths), 4), mechanism.start(), []
    rows[:, 0] = lengths
    for round in range(rounds):
        clips.append(state.clip)
        _, state = mechanism.release(rows, state, Rng(0).child(round))
    return clips


@pytest.mark.parametrize(("quantile", "initial"), [(0.5, 0.01), (0.5, 100.0), (0.8, 0.1)])
def test_the_clip_comes_to_the_quantile_of_the_lengths(quantile, initial):
    lengths = torch.exp(torch.randn(400, generator=Rng(5).torch()))
    clips = follow(AdaptiveClip(quantile=quantile, initial=initial), lengths)
    below = float((lengths <= np.median(clips[-30:])).double().mean())
    assert below == pytest.approx(quantile, abs=0.05)
    assert clips[0] == initial


def test_the_clip_moves_as_published():
    """C <- C exp(-lr (b - gamma)), with the noisy share b of those below it."""
    mechanism = CentralDP(
        noise_multiplier=0.5, expected=8, clip=AdaptiveClip(quantile=0.3, initial=1.0, lr=0.4, bit_noise=2.0)
    )
    rows = torch.diag(torch.tensor([0.5, 0.5, 0.5, 2.0, 2.0]))
    _, state = mechanism.release(rows, mechanism.start(), Rng(7))
    drawn = 2.0 * Rng(7).child("count").numpy().standard_normal()
    share = 0.5 + ((3 - 5 / 2) + drawn) / 8
    assert state.clip == pytest.approx(math.exp(-0.4 * (share - 0.3)))


def test_sum_and_count_together_cost_what_the_multiplier_says():
    """Two Gaussian releases of sensitivities C and 1/2 with noise z_d C and s_b are one with 1 / z^2 = 1 / z_d^2 + 1 / (2 s_b)^2."""
    for z, bit_noise in ((1.0, 5.0), (0.5, 0.3), (2.0, None)):
        mechanism = CentralDP(noise_multiplier=z, expected=60, clip=AdaptiveClip(bit_noise=bit_noise))
        assert mechanism.sum_noise**-2 + (2 * mechanism.bit_noise) ** -2 == pytest.approx(z**-2)
        assert mechanism.sum_noise > z
    assert CentralDP(noise_multiplier=2.0, expected=60, clip=AdaptiveClip()).bit_noise == 3.0
    assert CentralDP(noise_multiplier=2.0, expected=60, clip=1.0).sum_noise == pytest.approx(2.0)
    with pytest.raises(ConfigError, match="bit_noise: expected more than half of the noise multiplier 2, .* got 1"):
        _ = CentralDP(noise_multiplier=2.0, expected=60, clip=AdaptiveClip(bit_noise=1.0)).sum_noise


def test_the_noise_follows_the_clip():
    mechanism = CentralDP(noise_multiplier=1.0, expected=1, clip=AdaptiveClip(initial=1.0))
    small, _ = mechanism.release(torch.empty(0, 2000), CentralState(0.5), Rng(0))
    large, _ = mechanism.release(torch.empty(0, 2000), CentralState(5.0), Rng(0))
    assert torch.allclose(10 * small, large)


# What it costs

REFERENCE = {"total": 1000, "per_round": 50}


def test_the_same_cohort_costs_far_more_when_its_size_is_fixed():
    """1.68 by Poisson sampling; a fixed number costs 8.1 at least, and 8.99 is proven, for z = 1.2, 100 rounds, delta 5e-4."""
    mechanism = CentralDP(noise_multiplier=1.2, expected=50, clip=1.0)
    poisson = mechanism.account_rounds(Participation(**REFERENCE, sampling="poisson"), 100, 5e-4)
    assert poisson.value == pytest.approx(1.68, abs=0.02)
    assert (poisson.unit, poisson.relation, poisson.view) == ("client", "add/remove", "the published models")
    fixed = mechanism.account_rounds(Participation(**REFERENCE, sampling="fixed"), 100, 5e-4)
    assert fixed.relation == "replace" and 8.1 < fixed.value < 9.0
    assert "PRV" in fixed.accountant and "PRV" in poisson.accountant


@pytest.mark.parametrize("rounds", [1, 7, 30])
def test_without_a_draw_it_costs_what_the_gaussian_mechanism_does(rounds):
    everyone = CentralDP(noise_multiplier=4.0, expected=20, clip=1.0).account_rounds(
        Participation(total=20), rounds, 1e-5
    )
    assert everyone.value == pytest.approx(gaussian_epsilon(math.sqrt(rounds) / 4.0, 1e-5), abs=0.03)
    turns = Participation(total=20, per_round=5, sampling="cyclic")
    cyclic = CentralDP(noise_multiplier=4.0, expected=5, clip=1.0).account_rounds(turns, rounds, 1e-5)
    assert cyclic.value == pytest.approx(gaussian_epsilon(math.sqrt(-(-rounds // 4)) / 4.0, 1e-5), abs=0.03)


def test_correlated_rounds_cost_one_release_of_their_sensitivity():
    turns = Participation(total=20, per_round=5, sampling="cyclic")
    mechanism = CentralDP(noise_multiplier=5.0, expected=5, clip=1.0, bands=3)
    mu = math.sqrt(8 * (1 + 0.5**2 + 0.375**2)) / 5.0  # 30 rounds, each client in 8 of them
    assert mechanism.account_rounds(turns, 30, 1e-5).value == pytest.approx(gaussian_epsilon(mu, 1e-5), abs=0.03)


@pytest.mark.parametrize("noise", ["independent", Bands(bands=4)])
def test_a_target_finds_the_least_noise_that_keeps_it(noise):
    turns = Participation(total=20, per_round=5, sampling="cyclic")
    found = central(ClientNoise(epsilon=4.0, noise=noise), turns, 30)
    assert 3.95 < found.account_rounds(turns, 30, 1e-5).value <= 4.0


def test_who_takes_turns_comes_back_after_all_others():
    turns = Participation(total=12, per_round=3, sampling="cyclic")
    rounds = [turns.choose(Rng(0).child(round), round) for round in range(1, 11)]
    assert turns.separation == 4 and turns.participations(10) == 3
    assert sorted(client for round in rounds[:4] for client in round) == list(range(12))
    for client in range(12):
        taken = [round for round, chosen in enumerate(rounds) if client in chosen]
        assert {later - earlier for earlier, later in itertools.pairwise(taken)} == {4}
        assert len(taken) <= 3
