"""The samplers follow their laws exactly."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import chain, repeat

import numpy as np
import pytest
from scipy import stats

from fedguard.errors import ConfigError, UnknownName
from fedguard.privacy.mechanisms import DiscreteGaussian, Skellam, mechanism_named, sampler
from fedguard.privacy.mechanisms.discrete_gaussian import GaussianLaw
from fedguard.privacy.mechanisms.skellam import PoissonLaw
from fedguard.secagg.entropy import expand_seed
from tests.privacy.laws import chi_square, gaussian_log_pmf, skellam_log_pmf

DRAWS = 200_000


def reach(sigma: float) -> int:
    return math.ceil(12 * sigma) + 12


@pytest.mark.parametrize("sigma", [0.5, 0.77, 1.0, 3.3, 20.7])
def test_discrete_gaussian_against_its_mass_function(sigma):
    draws = DiscreteGaussian(sigma=sigma).sample(DRAWS, expand_seed(b"gaussian %f" % sigma))
    assert chi_square(draws, np.exp(gaussian_log_pmf(sigma, reach(sigma)))) > 0.001


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 1.4142135, 3.3, 20.7])
def test_skellam_against_scipy(sigma):
    draws = Skellam(sigma=sigma).sample(DRAWS, expand_seed(b"skellam %f" % sigma))
    assert chi_square(draws, np.exp(skellam_log_pmf(sigma**2, reach(sigma)))) > 0.001


@pytest.mark.parametrize("rate", [0.02, 0.5, 1.0, 7.25, 30.0])
def test_poisson_against_scipy(rate):
    law = PoissonLaw(rate)
    draws = law.mode + sampler.sample(law, DRAWS, expand_seed(b"poisson %f" % rate))
    pmf = np.zeros(301)
    pmf[150:] = stats.poisson.pmf(np.arange(151), rate)
    assert draws.min() >= 0
    assert chi_square(draws, pmf) > 0.001


@pytest.mark.parametrize("kind", [Skellam, DiscreteGaussian])
@pytest.mark.parametrize("sigma", [2.0**12 / 3, 2.0**24])
def test_wide_noise_against_the_normal_law(kind, sigma):
    """At such scales both laws, spread over their grid cells, are the normal one to within 1e-6; 200 equal cells of it."""
    draws = kind(sigma=sigma).sample(DRAWS, expand_seed(b"wide")) + np.random.default_rng(0).uniform(-0.5, 0.5, DRAWS)
    observed = np.bincount((stats.norm.cdf(draws / sigma) * 200).astype(int), minlength=200)
    assert stats.chisquare(observed).pvalue > 0.001


def test_the_test_of_laws_sees_small_faults():
    """What it must not pass: rounded normal noise, noise of a wrong scale, a cut tail, a missing negative side."""
    rng = np.random.default_rng(1)
    pmf = np.exp(gaussian_log_pmf(0.77, reach(0.77)))
    assert chi_square(np.rint(rng.normal(0, 0.77, DRAWS)).astype(int), pmf) < 1e-6
    assert chi_square(DiscreteGaussian(sigma=0.79).sample(DRAWS, expand_seed(b"a")), pmf) < 1e-6
    exact = DiscreteGaussian(sigma=0.77).sample(DRAWS, expand_seed(b"b"))
    assert chi_square(exact[abs(exact) <= 2], pmf) < 1e-6
    assert chi_square(abs(exact), pmf) < 1e-6
    assert chi_square(exact, pmf) > 0.001


@pytest.mark.parametrize("kind", [Skellam, DiscreteGaussian])
def test_moments(kind):
    draws = kind(sigma=100.0).sample(400_000, expand_seed(b"moments")) / 100.0
    assert abs(draws.mean()) < 4 / math.sqrt(400_000)
    assert abs(draws.var() - 1) < 4 * math.sqrt(2 / 400_000)
    assert abs((draws**4).mean() - 3) < 4 * math.sqrt(96 / 400_000)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4 / math.sqrt(400_000)


@pytest.mark.parametrize("kind", [Skellam, DiscreteGaussian])
def test_fixed_entropy_repeats(kind):
    noise = kind(sigma=7.5)
    one, same, other = (noise.sample(5000, expand_seed(seed)) for seed in (b"1", b"1", b"2"))
    assert one.dtype == np.int64
    assert (one == same).all()
    assert (one != other).mean() > 0.9


@pytest.mark.parametrize("rate", [1e-6, 0.3, 1.0, 7.2, 15.99, 16.0, 100.7, 1000.123, 1e5 + 0.77, 2.0**47])
def test_float_masses_are_right_to_the_promised_digits(rate):
    """Against exact products of fractions; the coin of the sampler relies on 2^-40."""
    law = PoissonLaw(rate)
    width = max(1.0, math.sqrt(rate))
    steps = np.round(np.random.default_rng(0).uniform(-6, 9, 30) * min(width, 100)).astype(np.int64)
    for y, found in zip(steps.tolist(), law.log_mass(steps), strict=True):
        if y < -law.mode:
            assert found == -math.inf
            continue
        exact = Fraction(1)
        for i in range(1, y + 1):
            exact *= Fraction(rate) / (law.mode + i)
        for i in range(-y):
            exact *= Fraction(law.mode - i) / Fraction(rate)
        with localcontext() as context:
            context.prec = 60
            true = (Decimal(exact.numerator) / Decimal(exact.denominator)).ln()
            assert abs(true - Decimal(float(found))) < 2.0**-42 or true < -64
            assert abs(law.mass(y, 40).ln() - true) < Decimal(10) ** -39


@pytest.mark.parametrize("law", [PoissonLaw(0.4), PoissonLaw(11.3), GaussianLaw(0.5), GaussianLaw(9.7)])
def test_the_exact_coin_falls_as_the_fast_one(law, monkeypatch):
    """With a margin of 1 float64 decides nothing, and every proposal that may be kept goes the slow way."""
    fast = sampler.sample(law, 1000, expand_seed(b"coin"))
    settled = []

    def counted(*arguments):
        settled.append(1)
        return exact(*arguments)

    exact = sampler._is_accepted
    monkeypatch.setattr(sampler, "_is_accepted", counted)
    assert (sampler.sample(law, 1000, expand_seed(b"coin")) == fast).all()
    assert not settled
    monkeypatch.setattr(sampler, "_MARGIN", 1.0)
    assert (sampler.sample(law, 1000, expand_seed(b"coin")) == fast).all()
    assert len(settled) >= 1000


def test_an_undecided_coin_takes_more_bits():
    """f(1) = 1/3 = 0.010101... in binary: after 64 equal bits the next 64 decide."""

    class Third:
        def mass(self, y, digits):
            return Decimal(1) / 3

    first = int("01" * 32, 2)

    def thrown(word, *more):
        extra = iter(more)
        kept = sampler._is_accepted(Third(), 1, 0, 0.0, word, lambda count: next(extra).to_bytes(count, "little"))
        assert next(extra, None) is None  # no more bits than it takes
        return kept

    assert thrown(first - 1)
    assert not thrown(first + 1)
    assert thrown(first, first - 1)
    assert not thrown(first, first + 1)
    assert thrown(first, first, 0)


def test_runs_of_coins_have_no_end():
    coins = np.array([1, 8, 0, 2**63, 0], "<u8")
    more = chain([np.array([4, 0], "<u8").tobytes(), np.array([1], "<u8").tobytes()], repeat(b""))
    assert sampler._runs(coins, lambda count: next(more)).tolist() == [0, 3, 66, 63, 128]


def test_scales_out_of_range_are_refused():
    with pytest.raises(ConfigError, match=r"discrete_gaussian: .* from 0.5 .* got 0.4. Raise"):
        DiscreteGaussian(sigma=0.4)
    with pytest.raises(ConfigError, match="Lower"):
        Skellam(sigma=2.0**25)
    with pytest.raises(ConfigError):
        Skellam(sigma=math.nan)
    with pytest.raises(UnknownName, match="skellam"):
        mechanism_named("skelam")
    assert mechanism_named("skellam") is Skellam
