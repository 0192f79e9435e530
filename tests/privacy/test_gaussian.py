"""Gaussian noise on samples: against integrals, closed forms and a plain composition of privacy losses."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
import typer
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp, ndtr
from typer.testing import CliRunner

from fedguard.commands.epsilon import epsilon as command
from fedguard.errors import ConfigError
from fedguard.privacy.accountants import accountant_named
from fedguard.privacy.accounting import ORDERS, SubsampledGaussian, UnsupportedEvent
from fedguard.privacy.calibration import gaussian_noise
from fedguard.privacy.gaussian import epsilon, gaussian_event, poisson_rdp, rdp_without_replacement
from tests.root import ROOT


def event(noise_multiplier=1.0, sample_rate=0.01, steps=1000, **changes):
    meaning = {"sampling": "poisson", "unit": "record", "view": "the model"} | changes
    return gaussian_event(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps, **meaning)


def density(x, mean, s):
    return np.exp(-((x - mean) ** 2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi))


def log_mixture(x, weights, means, s):
    return logsumexp(
        [math.log(w) - (x - mean) ** 2 / (2 * s**2) for w, mean in zip(weights, means, strict=True)], axis=0
    )


def divergence(log_p, log_q, x, order, s):
    """Rényi divergence of two mixtures of Gaussians on an even grid, given without their common factor."""
    integral = np.trapezoid(np.exp(order * log_p + (1 - order) * log_q), x) / (s * math.sqrt(2 * math.pi))
    return math.log(integral) / (order - 1)


def exact_gaussian(mu, delta):
    """Epsilon of N(0, 1) against N(mu, 1): Balle and Wang 2018, Theorem 8."""

    def log_delta(e):
        inside, outside = log_ndtr(mu / 2 - e / mu), e + log_ndtr(-mu / 2 - e / mu)
        return inside + math.log(-math.expm1(outside - inside))

    return brentq(lambda e: log_delta(e) - math.log(delta), 1e-9, 25 * mu + mu**2)


def composed(history, delta, *, added=False, reach=40.0, size=2**17):
    """Epsilon of (q, s, T) steps together: losses by their definition, on a grid, composed by Fourier transform."""
    h, spectrum = 2 * reach / size, 1.0
    for q, s, steps in history:
        x = np.linspace(-14 * s, 1 + 14 * s, 2**19 + 1)
        middle = (x[1:] + x[:-1]) / 2
        without = np.diff(ndtr(x / s))
        present = (1 - q) * without + q * np.diff(ndtr((x - 1) / s))
        loss = np.log1p(q * np.expm1((2 * middle - 1) / (2 * s**2)))
        mass, loss = (without, -loss) if added else (present, loss)
        bins = np.clip(np.round(loss / h).astype(int), -size // 2, size // 2 - 1)
        spectrum = spectrum * np.fft.rfft(np.bincount(bins % size, weights=mass, minlength=size)) ** steps
    pmf = np.fft.fftshift(np.fft.irfft(spectrum, size))
    t = h * np.arange(-size // 2, size // 2)

    def leaked(e):
        return float((pmf[t > e] * -np.expm1(e - t[t > e])).sum())

    return brentq(lambda e: leaked(e) - delta, 0, reach / 2)


# --- the reference values -------------------------------------------------------------------------------------------

#: q, noise multiplier, steps, delta -> RDP, PRV, by privacy loss distributions
REFERENCES = [
    ((0.01, 1.0, 1000, 1e-5), (2.101, 1.838, 1.828)),
    ((0.1, 2.0, 200, 1e-5), (3.680, 3.370, 3.360)),
    ((1.0, 5.0, 10, 1e-5), (2.814, 2.605, 2.594)),
]


@pytest.mark.parametrize(("setting", "expected"), REFERENCES)
def test_reference_values_to_the_third_decimal(setting, expected):
    q, s, steps, delta = setting
    found = [epsilon(s, q, steps, delta, name).value for name in ("rdp", "prv")]
    assert found == pytest.approx(expected[:2], abs=5.1e-4)
    truth = max(composed([(q, s, steps)], delta, added=added) for added in (False, True))
    assert truth == pytest.approx(expected[2], abs=1.1e-3)
    assert truth < found[1] < found[0]


@pytest.mark.parametrize(
    "setting", [setting for setting, _ in REFERENCES] + [(0.05, 1.2, 100, 5e-4), (0.3, 0.6, 50, 1e-6)]
)
def test_more_orders_than_opacus_never_give_a_larger_epsilon(setting):
    from opacus.accountants import RDPAccountant

    q, s, steps, delta = setting
    theirs = RDPAccountant()
    theirs.history = [(s, q, steps)]
    ours = epsilon(s, q, steps, delta, "rdp").value
    assert 0.99 * theirs.get_epsilon(delta) <= ours <= theirs.get_epsilon(delta) + 1e-12


def test_fifty_of_a_thousand_clients_by_poisson_and_at_a_fixed_number():
    """The same noise proves 1.68 for Poisson sampling (1.694 with the accountant's own error), 13.9 for a fixed number."""
    setting = {"noise_multiplier": 1.2, "sample_rate": 0.05, "steps": 100, "delta": 5e-4, "unit": "client"}
    assert composed([(0.05, 1.2, 100)], 5e-4) == pytest.approx(1.684, abs=2e-3)
    assert epsilon(**setting).value == pytest.approx(1.694, abs=1e-3)
    assert epsilon(**setting, sampling="fixed", accountant="rdp").value == pytest.approx(13.949, abs=1e-3)


# --- Poisson samples ------------------------------------------------------------------------------------------------


def test_poisson_divergence_is_the_integral_of_the_mixture():
    x = np.linspace(-60, 90, 400_001)
    for q, s in ((0.01, 1.0), (0.1, 2.0), (0.5, 1.5), (0.9, 4.0)):
        without, present = log_mixture(x, [1], [0], s), log_mixture(x, [1 - q, q], [0, 1], s)
        for order in (1.1, 1.5, 2.0, 3.3, 8.0):
            removed, added = divergence(present, without, x, order, s), divergence(without, present, x, order, s)
            (found,) = poisson_rdp(SubsampledGaussian(noise_multiplier=s, sample_rate=q), np.array([order]))
            assert found == pytest.approx(removed, rel=1e-6)
            assert added <= removed * (1 + 1e-6)


def test_divergences_stay_sane_where_opacus_overflows_or_rounds():
    for q, s in ((1e-6, 1e4), (0.5, 1e5), (0.1, 0.05), (1.0, 3.0)):
        found = poisson_rdp(SubsampledGaussian(noise_multiplier=s, sample_rate=q), ORDERS)
        assert (found >= 0).all()
        assert not np.isnan(found).any()
        assert (found <= ORDERS / (2 * s**2) * (1 + 1e-9) + 1e-9)[np.isfinite(found)].all()  # sampling costs nothing


def test_the_series_and_the_grid_are_those_of_opacus_to_the_last_bit():
    """Ours takes all terms of an order at once, and no order twice."""
    from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV, compute_safe_domain_size
    from opacus.accountants.analysis.rdp import compute_rdp

    from fedguard.privacy.accountants import _domain_size
    from fedguard.privacy.divergences import divergences

    orders = [1.01, 1.3, 2.0, 4.7, 9.9, 10.5, 63.0, 1000.0]
    errors = {"eps_error": 0.01, "delta_error": 1e-8}
    for q, s in ((1e-6, 0.3), (0.01, 1.0), (0.1, 0.3), (0.5, 7.0), (0.9, 0.05), (1.0, 2.0)):
        assert (divergences(q, s, orders) == compute_rdp(q=q, noise_multiplier=s, steps=1, orders=orders)).all()
    laws = [PoissonSubsampledGaussianPRV(q, s) for q, s in ((0.01, 1.0), (0.3, 2.0))]
    for chosen, counts in ((laws[:1], [1]), (laws[:1], [1000]), (laws, [20, 7])):
        assert _domain_size(chosen, counts, **errors) == compute_safe_domain_size(chosen, counts, **errors)


@pytest.mark.parametrize(("q", "s", "delta"), [(0.1, 1.0, 1e-4), (0.5, 0.8, 1e-3), (0.02, 0.5, 1e-5), (1.0, 2.0, 1e-5)])
def test_one_step_by_integration_of_its_densities(q, s, delta):
    x = np.linspace(-15 * s, 1 + 15 * s, 400_001)
    without = density(x, 0, s)
    present = (1 - q) * without + q * density(x, 1, s)

    def leaked(e):
        over = (present - math.exp(e) * without, without - math.exp(e) * present)
        return max(np.trapezoid(np.maximum(one, 0), x) for one in over)

    truth = brentq(lambda e: leaked(e) - delta, 0, 60)
    assert truth <= epsilon(s, q, 1, delta).value <= truth + 0.03
    assert truth <= epsilon(s, q, 1, delta, "rdp").value


def test_one_step_by_drawing_from_it():
    """delta(e) as a mean over 400,000 draws of the release; its standard error is below 4e-4."""
    q, s, delta = 0.3, 1.0, 0.02
    found = epsilon(s, q, 1, delta).value
    rng = np.random.default_rng(5)
    x = rng.normal(0, s, 400_000) + (rng.random(400_000) < q)
    loss = np.log1p(q * np.expm1((2 * x - 1) / (2 * s**2)))
    leaked = [np.maximum(-np.expm1(e - loss), 0).mean() for e in (found, found - 0.15)]
    assert leaked[0] <= delta + 1.2e-3
    assert leaked[1] > delta + 1.2e-3


def test_the_added_unit_is_counted_too():
    """PRV takes the worse of both directions; opacus looks at the removed unit alone."""
    from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV

    from fedguard.privacy.accountants import _AdditionLoss, _compose_losses, _quiet

    for q, s, steps in ((0.3, 1.0, 5), (0.1, 2.0, 200)):
        removed = PoissonSubsampledGaussianPRV(q, s)
        for losses, added in ((removed, False), (_AdditionLoss(removed), True)):
            truth = composed([(q, s, steps)], 1e-5, added=added)
            with _quiet():
                assert truth <= _compose_losses([losses], [steps], 1e-5) <= truth + 0.03


def test_local_steps_add_up_over_the_rounds():
    """Ten local steps in each of twenty rounds: 2.86 if counted anew in each round, 9.97 in truth."""
    one, all_rounds = (composed([(0.1, 1.0, steps)], 1e-5) for steps in (10, 200))
    assert one == pytest.approx(2.86, abs=6e-3)
    assert all_rounds == pytest.approx(9.97, abs=6e-3)
    account = accountant_named("prv").compose_events
    rounds = [event(1.0, 0.1, 10)] * 20
    assert account(rounds, 1e-5).value == account([event(1.0, 0.1, 200)], 1e-5).value == pytest.approx(9.98, abs=5e-3)
    assert account(rounds[:1], 1e-5).value == pytest.approx(2.865, abs=5e-3)


def test_different_steps_compose():
    """Noise that changes on the way, against the closed form where all take part, and the plain composition where not."""
    account = accountant_named("prv").compose_events
    whole = [event(s, 1.0, steps, sampling="none") for s, steps in ((3.0, 2), (2.0, 3), (8.0, 16))]
    truth = exact_gaussian(math.sqrt(2 / 9 + 3 / 4 + 16 / 64), 1e-6)
    assert truth <= account(whole, 1e-6).value <= truth + 0.03
    history = [(0.05, 0.8, 20), (0.1, 1.5, 50), (0.02, 0.6, 7)]
    truth = max(composed(history, 1e-5, added=added) for added in (False, True))
    assert truth <= account([event(s, q, steps) for q, s, steps in history], 1e-5).value <= truth + 0.03


# --- all of them, and public schedules ------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_without_sampling_every_bound_is_above_the_exact_curve_and_prv_is_near(mu, delta):
    if 2 * ndtr(mu / 2) - 1 <= delta:
        pytest.skip("epsilon is zero")
    truth = exact_gaussian(mu, delta)
    for steps in (1, 50):
        s = math.sqrt(steps) / mu
        prv, rdp = (epsilon(s, 1.0, steps, delta, name, sampling="none").value for name in ("prv", "rdp"))
        assert truth <= prv <= truth + 0.03
        assert truth <= rdp


def test_a_replaced_unit_moves_the_sum_twice_as_far():
    for sampling in ("none", "cyclic"):
        replaced = event(2.0, 1.0, 5, sampling=sampling, relation="replace")
        for name in ("rdp", "prv"):
            account = accountant_named(name).compose_events
            assert account([replaced], 1e-5).value == account([event(1.0, 1.0, 5, sampling="none")], 1e-5).value


def test_a_public_schedule_amplifies_nothing():
    """Three epochs of ten batches: a unit is in three steps, and they count in full."""
    for steps, share, own in ((30, 0.1, 3), (31, 0.1, 4), (10, 1 / 3, 4), (9, 1 / 3, 3), (1, 0.01, 1)):
        cyclic = event(2.0, share, steps, sampling="cyclic")
        assert cyclic.count == own
        whole = event(2.0, 1.0, own, sampling="none")
        assert (
            accountant_named("rdp").compose_events([cyclic], 1e-5).value
            == accountant_named("rdp").compose_events([whole], 1e-5).value
        )
    assert any("at most 3 of 30 steps" in text for text in event(2.0, 0.1, 30, sampling="cyclic").assumptions)


# --- a fixed number without replacement -----------------------------------------------------------------------------


def test_the_bound_for_fixed_numbers_as_a_plain_loop():
    """Wang et al. 2019, Theorem 9, without a bound on the pure epsilon; the noise is N(0, s^2) against a shift of 1."""
    for s, q in ((0.9, 0.05), (1.0, 0.2), (3.0, 0.01), (40.0, 0.5)):
        for a in (2, 3, 7, 20):
            r = {j: j / (2 * s**2) for j in range(2, a + 1)}
            total = 1 + q**2 * math.comb(a, 2) * min(4 * (math.exp(r[2]) - 1), 2 * math.exp(r[2]))
            total += sum(q**j * math.comb(a, j) * 2 * math.exp((j - 1) * r[j]) for j in range(3, a + 1))
            expected = min(math.log(total) / (a - 1), a / (2 * s**2))
            one = SubsampledGaussian(noise_multiplier=s, sample_rate=q)
            assert rdp_without_replacement(one, np.array([float(a)])) == pytest.approx(expected)
            (between, whole) = rdp_without_replacement(one, np.array([a - 0.5, float(a)]))
            assert between <= whole


@pytest.mark.parametrize(("n", "k"), [(3, 2), (4, 1), (5, 2), (6, 5)])
def test_the_bound_holds_for_every_small_data_set(n, k):
    """Others at -1 or 1, one unit replaced: the divergence of the mixtures over all samples."""
    s, x = 1.5, np.linspace(-40, 40, 8_001)

    def mixture(values):
        sums = Counter(sum(chosen) for chosen in combinations(values, k))
        return log_mixture(x, [count / math.comb(n, k) for count in sums.values()], list(sums), s)

    orders = np.array([2.0, 3.0, 6.0])
    rdp = event(s, k / n, 1, sampling="fixed").rdp
    bound, worst = rdp(orders), np.zeros(3)
    for others in product((-1, 1), repeat=n - 1):
        for one, other in ((1, -1), (-1, 1), (0, 1), (1, 0)):
            p, q = mixture((one, *others)), mixture((other, *others))
            worst = np.maximum(worst, [divergence(p, q, x, order, s) for order in orders])
    assert (worst <= bound * (1 + 1e-9)).all()
    poisson = poisson_rdp(SubsampledGaussian(noise_multiplier=s, sample_rate=k / n), orders)
    assert (worst > poisson).all()  # the curve of Poisson sampling would be no bound here


def replaced_law(s, q):
    from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV

    from fedguard.privacy.accountants import _ReplacementLoss

    return _ReplacementLoss(PoissonSubsampledGaussianPRV(q, s / 2))  # a replaced unit moves the sum by 2


@pytest.mark.parametrize(("n", "k"), [(3, 2), (4, 1), (5, 2)])
def test_the_law_of_a_replaced_unit_bounds_every_hockey_stick_of_every_small_data_set(n, k):
    """delta(e) = int_e^inf exp(e - t) P[L > t] dt, at negative e too, as composition needs; one neighbor attains it."""
    s, x, t = 1.5, np.linspace(-25, 25, 20_001), np.linspace(-12, 12, 48_001)
    law = replaced_law(s, k / n)
    with np.errstate(all="ignore"):
        above = 1 - law.cdf(t)

    def density_of(values):
        return sum(density(x, sum(chosen), s) for chosen in combinations(values, k)) / math.comb(n, k)

    attained = []
    for e in (-2.0, -0.5, -0.05, 0.05, 0.3, 1.0, 2.0):
        after = t >= e
        proven = np.trapezoid(np.exp(e - t[after]) * above[after], t[after])
        for others in product((-1, 1), repeat=n - 1):
            for one, other in ((1, -1), (-1, 1), (0, 1), (1, 0)):
                p, q = density_of((one, *others)), density_of((other, *others))
                truth = np.trapezoid(np.maximum(p - math.exp(e) * q, 0), x)
                assert truth <= proven + 1e-4
                attained.append(e > 0 and truth > 0 and truth > proven - 1e-4)
    assert any(attained)


@pytest.mark.parametrize(
    ("q", "s", "steps", "delta"), [(0.05, 10.0, 300, 1e-5), (0.05, 1.2, 100, 5e-4), (0.2, 2.0, 5, 1e-5)]
)
def test_a_fixed_number_costs_no_less_than_its_worst_neighbors_and_no_more_than_by_divergences(q, s, steps, delta):
    """All others at -C and one moved from C to -C, or back: these two pairs exist, so their epsilons bound from below."""
    below = max(composed([(q, s / 2, steps)], delta, added=added) for added in (False, True))
    found, by_rdp = (epsilon(s, q, steps, delta, name, sampling="fixed") for name in ("prv", "rdp"))
    assert below <= found.value <= min(1.25 * below, by_rdp.value)
    assert found.accountant.startswith("PRV")


def test_three_hundred_steps_of_a_fixed_number_by_three_bounds():
    """q = 0.05, s = 10, T = 300, delta = 1e-5: 2.382 by Wang et al.'s Theorem 9, 1.507 by their Theorem 27 (dp-accounting 0.6)."""
    setting = {"noise_multiplier": 10.0, "sample_rate": 0.05, "steps": 300, "sampling": "fixed"}
    assert epsilon(**setting, accountant="rdp").value == pytest.approx(2.382, abs=1e-3)
    assert epsilon(**setting).value == pytest.approx(0.687, abs=1e-3) and 0.687 < 1.507


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_drawing_all_is_drawing_without_sampling(accountant):
    replaced = epsilon(2.0, 1.0, 5, accountant=accountant, sampling="none", relation="replace").value
    assert epsilon(2.0, 1.0, 5, accountant=accountant, sampling="fixed").value == pytest.approx(replaced)


# --- of two bounds the smaller one ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "s", "steps"), [(0.01, 50.0, 10), (1.0, 200.0, 1), (0.01, 1.0, 1000), (0.1, 4.0, 3)])
def test_prv_is_never_above_rdp_and_says_which_of_them_it_is(q, s, steps):
    by_rdp, found = epsilon(s, q, steps, 1e-5, "rdp"), epsilon(s, q, steps, 1e-5)
    assert found.value <= by_rdp.value and found.bound
    assert found.accountant.startswith("PRV" if found.value < by_rdp.value else "RDP")
    assert composed([(q, s, steps)], 1e-5) <= found.value + 1e-4
    assert found.accountant.startswith("RDP" if s >= 50 else "PRV")


def test_the_command_names_the_bound_that_it_took():
    arguments = ["--noise-multiplier", "50", "--steps", "10"]
    said = CliRunner().invoke(app, arguments).output
    assert re.search(r"prv +0\.00\d +upper bound, by RDP", said) and "accountant: RDP" in said
    assert "by RDP" not in CliRunner().invoke(app, ["--steps", "100"]).output


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sampling": "poisson", "relation": "replace"}, "proven for add/remove"),
        ({"sampling": "fixed", "relation": "add/remove"}, "another unit is missing"),
        ({"sampling": "shuffle"}, "no amplification is proven for shuffled batches"),
        ({"sampling": "poison"}, "expected one of poisson, fixed, none, cyclic"),
        ({"sampling": "none"}, "expected 1 with sampling none"),
        ({"relation": "zero-out"}, "expected one of add/remove, replace"),
        ({"unit": "user"}, "expected one of record, client"),
        ({"noise_multiplier": 0.0}, "epsilon is infinite"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"noise_multiplier": math.inf}, "noise_multiplier"),
        ({"sample_rate": 0.0}, "sample_rate"),
        ({"sample_rate": 1.01}, "sample_rate"),
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"accountant": "moments"}, "unknown accountant 'moments'"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        epsilon(**changes)
    assert "\n" not in str(caught.value)


def test_no_estimate_is_made_for_a_fixed_number():
    with pytest.raises(UnsupportedEvent, match="Use the accountant rdp"):
        epsilon(sampling="fixed", accountant="gdp")


def test_a_records_epsilon_is_not_a_clients():
    with pytest.raises(ConfigError, match="Account for each kind by itself"):
        accountant_named("prv").compose_events([event(), event(unit="client")], 1e-5)


# --- the noise for a target -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accountant", "setting"),
    [
        ("prv", {"epsilon": 1.0, "delta": 1e-5, "sample_rate": 0.01, "steps": 1000}),
        ("rdp", {"epsilon": 8.0, "delta": 1e-6, "sample_rate": 0.05, "steps": 300}),
        ("rdp", {"epsilon": 2.0, "delta": 1e-5, "sample_rate": 0.05, "steps": 100, "sampling": "fixed"}),
        ("gdp", {"epsilon": 3.0, "delta": 1e-5, "sample_rate": 0.02, "steps": 500, "unit": "client"}),
    ],
)
def test_the_least_noise_for_a_target(accountant, setting):
    noise = gaussian_noise(**setting, accountant=accountant)
    target = setting.pop("epsilon")
    assert epsilon(noise, accountant=accountant, **setting).value <= target
    assert epsilon(noise * 0.999, accountant=accountant, **setting).value > target


def test_the_least_noise_without_sampling_is_the_closed_forms():
    noise = gaussian_noise(epsilon=2.0, delta=1e-5, sample_rate=1.0, steps=16, sampling="none")
    exact = brentq(lambda s: exact_gaussian(4 / s, 1e-5) - 2.0, 1, 100)
    assert exact <= noise <= 1.02 * exact


def test_a_target_out_of_reach_is_refused():
    with pytest.raises(ConfigError, match="out of reach for 10 steps by the accountant prv"):
        gaussian_noise(epsilon=1e-5, delta=1e-9, sample_rate=1.0, steps=10, sampling="none")
    with pytest.raises(ConfigError, match="prv rounds too coarsely below 1e-10"):
        gaussian_noise(epsilon=1.0, delta=1e-11, sample_rate=0.1, steps=10)
    with pytest.raises(ConfigError, match="epsilon: expected a positive number"):
        gaussian_noise(epsilon=0.0, delta=1e-5, sample_rate=0.1, steps=10)
    with pytest.raises(ConfigError, match="another unit is missing"):
        gaussian_noise(epsilon=1.0, delta=1e-5, sample_rate=0.1, steps=10, sampling="fixed", relation="add/remove")


# --- the command, and the document ----------------------------------------------------------------------------------

app = typer.Typer()
app.command()(command)


def test_the_command_says_all_that_a_figure_means():
    result = CliRunner().invoke(app, ["--unit", "client"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for part in (
        "epsilon = 1.838 at delta = 1e-05",
        "unit: client",
        "relation: add/remove",
        "sampling: poisson",
        "adversary view: the model after every round",
        "accountant: PRV",
        "assumes: the sum is divided by a public number",
        "2.101",
        "estimate",
    ):
        assert part in result.output


def test_the_command_finds_noise_and_speaks_json():
    arguments = ["--target", "2", "--sample-rate", "0.02", "--steps", "500", "--accountant", "rdp", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).output)
    assert 1.99 < found["value"] <= 2.0
    assert found["noise_multiplier"] == pytest.approx(
        gaussian_noise(epsilon=2.0, delta=1e-5, sample_rate=0.02, steps=500, accountant="rdp")
    )
    assert found["accountants"]["prv"]["value"] < found["value"]
    assert found["accountants"]["gdp"]["bound"] is False
    refused = json.loads(CliRunner().invoke(app, ["--sampling", "fixed", "--accountant", "rdp", "--json"]).output)
    assert "refused" in refused["accountants"]["gdp"]


def test_help_loads_neither_torch_nor_opacus():
    code = (
        "import sys, typer; from fedguard.commands.epsilon import epsilon; app = typer.Typer(); app.command()(epsilon)\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'opacus', 'scipy', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_documents_table_is_what_comes_out():
    text = (ROOT / "docs" / "privacy_noise.md").read_text()
    rows = re.findall(
        r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \| (\S+) \| ([\d.]+) \| ([\d.]+|-) \| ([\d.]+|-) \|$", text, re.M
    )
    assert len(rows) >= 6
    for sampling, q, s, steps, delta, *expected in rows:
        for name, figure in zip(("rdp", "prv", "gdp"), expected, strict=True):
            setting = (float(s), float(q), int(steps), float(delta), name)
            if figure == "-":
                with pytest.raises(UnsupportedEvent):
                    epsilon(*setting, sampling=sampling)
            else:
                assert f"{epsilon(*setting, sampling=sampling).value:.3f}" == figure, (sampling, *setting)
