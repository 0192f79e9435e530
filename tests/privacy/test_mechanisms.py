"""Bounds on Rényi divergences and tails, against sums over the true laws."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from fedguard.privacy.mechanisms import DiscreteGaussian, Skellam
from tests.privacy.laws import gaussian_log_pmf, log_convolved, renyi, skellam_log_pmf

ORDERS = [1.1, 1.5, 2.0, 2.5, 3.0, 5.0, 8.0, 16.0]


def bound(noise, order, *, shift, contributors, dim=1):
    shifts = np.atleast_1d(shift)
    found = noise.rdp(
        np.array([order]),
        sensitivity_l1=float(np.abs(shifts).sum()),
        sensitivity_l2=float(np.linalg.norm(shifts)),
        contributors=contributors,
        dim=dim,
    )
    assert found.shape == (1,)
    return float(found[0])


@cache
def law_of_sum(noise, contributors):
    """log P of the sum, out to where a divergence of order a has its weight: about a times the shift."""
    if isinstance(noise, Skellam):
        mu = contributors * noise.sigma**2
        return skellam_log_pmf(mu, 100 + math.ceil(12 * math.sqrt(mu)))
    return log_convolved(gaussian_log_pmf(noise.sigma, 150), contributors)


@pytest.mark.parametrize(
    ("sigma", "contributors", "shift"), list(itertools.product([1.0, 2.5, 6.0], [1, 3, 7], [1, 2, 5]))
)
def test_skellam_bounds_the_divergence_of_the_sum(sigma, contributors, shift):
    noise = Skellam(sigma=sigma)
    for order in ORDERS:
        true = renyi(law_of_sum(noise, contributors), shift, order)
        found = bound(noise, order, shift=shift, contributors=contributors)
        assert found >= true * (1 - 1e-9)
        if order == int(order) and contributors * sigma**2 > 50:  # close, once the noise is wider than the grid
            assert found <= true * 1.15


@pytest.mark.parametrize(
    ("sigma", "contributors", "shift"), list(itertools.product([0.5, 0.7, 1.0, 2.5], [1, 2, 3, 7], [1, 2, 4]))
)
def test_discrete_gaussian_bounds_the_divergence_of_the_sum(sigma, contributors, shift):
    noise = DiscreteGaussian(sigma=sigma)
    for order in ORDERS:
        true = renyi(law_of_sum(noise, contributors), shift, order)
        found = bound(noise, order, shift=shift, contributors=contributors)
        assert found >= true * (1 - 1e-9)
        if sigma > 1:
            assert found <= true * 1.01


@pytest.mark.parametrize("kind", [Skellam, DiscreteGaussian])
@pytest.mark.parametrize("shift", [[1, 1], [3, 0], [2, -1, 1]])
def test_vectors(kind, shift):
    """Coordinates are independent, so their divergences add up."""
    noise = kind(sigma=4.0)
    log_pmf = law_of_sum(noise, 3)
    for order in (2.0, 4.0, 9.0):
        true = sum(renyi(log_pmf, abs(step), order) for step in shift if step)
        found = bound(noise, order, shift=shift, contributors=3, dim=len(shift))
        assert true <= found * (1 + 1e-9) <= true * 1.15


@pytest.mark.parametrize("kind", [Skellam, DiscreteGaussian])
def test_a_bound_for_twice_the_noise_is_found_out(kind):
    """A planted fault: half the noise that the accountant believes in breaks its bound at every order."""
    for order in ORDERS:
        true = renyi(law_of_sum(kind(sigma=1.5), 4), 2, order)
        assert bound(kind(sigma=3.0), order, shift=2, contributors=4) < true


@pytest.mark.parametrize("kind", [Skellam, DiscreteGaussian])
def test_noise_that_dropped_out_is_found_out(kind):
    """So does the noise of clients that are not in the sum."""
    for order in (2.0, 4.0, 8.0):
        true = renyi(law_of_sum(kind(sigma=3.0), 7), 2, order)
        assert bound(kind(sigma=3.0), order, shift=2, contributors=10) < true
        assert bound(kind(sigma=3.0), order, shift=2, contributors=7) >= true * (1 - 1e-9)


def test_skellam_formula_by_hand():
    """Corollary 3.6 for a = 4, D1 = 6, D2 = 3, mu = 5 * 2^2 = 20: the first term of the minimum, then the second."""
    skellam = Skellam(sigma=2.0)
    found = skellam.rdp(np.array([4.0]), sensitivity_l1=6, sensitivity_l2=3, contributors=5, dim=9)
    assert found == pytest.approx([4 * 9 / 40 + min((7 * 9 + 36) / 1600, 18 / 40)])
    found = Skellam(sigma=1.0).rdp(np.array([40.0]), sensitivity_l1=1, sensitivity_l2=1, contributors=1, dim=9)
    assert found == pytest.approx([40 / 2 + min((79 + 6) / 4, 3 / 2)])


def test_discrete_gaussian_formula_by_hand():
    """Proposition 14 as a plain loop, and the better of fewer contributors where tau is large."""

    def paper(order, l1, l2, n, sigma, dim):
        tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, n))
        wide = math.sqrt(n) * sigma
        return min(
            order / 2 * (l2 / wide) ** 2 + tau * dim,
            order / 2 * ((l2 / wide) ** 2 + 2 * l1 / wide * tau + tau**2 * dim),
            order / 2 * (l2 / wide + tau * math.sqrt(dim)) ** 2,
        )

    for sigma, dim, n in itertools.product([0.5, 0.8, 1.1, 4.0], [1, 50, 10**6], [1, 2, 30]):
        found = DiscreteGaussian(sigma=sigma).rdp(
            np.array([2.0, 9.0]), sensitivity_l1=12.0, sensitivity_l2=4.0, contributors=n, dim=max(dim, 9)
        )
        best = [min(paper(order, 12.0, 4.0, k, sigma, max(dim, 9)) for k in range(1, n + 1)) for order in (2.0, 9.0)]
        assert found == pytest.approx(best)


@pytest.mark.parametrize("kind", [Skellam, DiscreteGaussian])
def test_more_contributors_never_hurt_and_none_protect_nothing(kind):
    noise = kind(sigma=0.6)
    found = [bound(noise, 3.0, shift=2, contributors=k, dim=10**6) for k in range(60)]
    assert found[0] == math.inf
    assert bound(noise, 3.0, shift=2, contributors=-2) == math.inf
    assert all(more <= fewer for fewer, more in itertools.pairwise(found))


def test_taking_a_sum_modulo_the_ring_costs_no_privacy():
    """Wrapped laws are no easier to tell apart: the guarantee survives an overflow, the utility does not."""
    log_pmf = skellam_log_pmf(9.0, 150)
    pmf = np.exp(log_pmf)

    def wrapped(law, ring):
        return np.bincount(np.arange(len(law)) % ring, weights=law, minlength=ring)

    for ring, order in itertools.product((4, 8, 16), (2.0, 4.0)):
        p, q = wrapped(np.append(np.zeros(2), pmf[:-2]), ring), wrapped(pmf, ring)
        folded = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
        assert 0 < folded <= renyi(log_pmf, 2, order) + 1e-12


@pytest.mark.parametrize("beta", [1e-3, 1e-9])
@pytest.mark.parametrize(("sigma", "clients"), [(0.5, 1), (0.7, 20), (5.0, 4), (12.0, 6)])
def test_tails_hold_and_are_not_much_too_wide(sigma, clients, beta):
    skellam, mu = Skellam(sigma=sigma), clients * sigma**2

    def skellam_beyond(reach):
        return 2 * stats.skellam.sf(reach, mu / 2, mu / 2)

    pmf = np.exp(log_convolved(gaussian_log_pmf(sigma, math.ceil(10 * sigma * math.sqrt(clients))), clients))

    def gaussian_beyond(reach):
        return 2 * pmf[len(pmf) // 2 + reach + 1 :].sum()

    for noise, beyond in ((skellam, skellam_beyond), (DiscreteGaussian(sigma=sigma), gaussian_beyond)):
        reach = noise.noise_tail(clients, beta)
        assert beyond(reach) <= beta
        assert beyond(math.floor(reach / 1.5)) > beta or reach < 12


def test_tails_by_hand():
    """log(2 / beta) = 11 at beta = 2 exp(-11); the sum of 20 clients with sigma = 3 has variance 180."""
    beta = 2 * math.exp(-11)
    assert DiscreteGaussian(sigma=3.0).noise_tail(20, beta) == math.ceil(math.sqrt(2 * 180 * 11))
    assert Skellam(sigma=3.0).noise_tail(20, beta) == math.ceil(math.sqrt(2 * 180 * 11) + 11 / 3)
