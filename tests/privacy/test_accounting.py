"""Accountants compose, convert and refuse: each of them keeps the same laws."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest

from fedguard.errors import ConfigError, UnknownName
from fedguard.privacy.accountants import ACCOUNTANTS, accountant_named
from fedguard.privacy.accounting import (
    ORDERS,
    Event,
    OutOfRange,
    RDPAccountant,
    SubsampledGaussian,
    UnsupportedEvent,
    convert_rdp,
    least,
    parallel,
)
from fedguard.privacy.gaussian import gaussian_event


def gaussian(multiplier, **changes):
    event = {
        "mechanism": "gaussian",
        "rdp": lambda orders: orders / (2 * multiplier**2),
        "unit": "client",
        "relation": "add/remove",
        "sampling": "none",
        "view": "the sum",
    }
    return Event(**event | changes)


def test_ten_rounds_of_the_gaussian_mechanism():
    """Reference values at delta = 1e-5 for sigma = 5, T = 10: RDP 2.814, and 2.594 by privacy loss distributions."""
    value = RDPAccountant().compose_events([gaussian(5.0, count=10)], 1e-5).value
    assert value == pytest.approx(2.814, abs=2e-3)
    assert value > 2.594


def test_the_conversion_as_a_plain_loop():
    """Balle et al. 2020, Theorem 21, over the same orders."""
    for rdp, delta in (
        (ORDERS / 50, 1e-5),
        (ORDERS / 2, 1e-3),
        (ORDERS * 1e-6, 1e-9),
        (np.full_like(ORDERS, 0.1), 1e-6),
    ):
        best = min(
            r + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1)
            for a, r in zip(ORDERS, rdp, strict=True)
        )
        assert convert_rdp(rdp, delta) == pytest.approx(max(0.0, best))


def test_orders_reach_far_enough_for_tiny_and_huge_epsilons():
    """The best of all orders, from the closed form of the Gaussian's conversion on a fine grid."""
    for rho in (1e-6, 1e-3, 1.0, 100.0, 1e4):
        fine = 1 + np.geomspace(1e-5, 1e9, 200_000)
        best = (rho * fine + np.log1p(-1 / fine) - (math.log(1e-5) + np.log(fine)) / (fine - 1)).min()
        assert best - 1e-12 <= convert_rdp(rho * ORDERS, 1e-5) <= 1.02 * best


def test_broken_orders_are_asked_for_where_they_could_be_the_best():
    """The figure is that of all orders to the last bit; for a small epsilon those near 1 are spared."""
    for rho, delta, spared in ((1e-3, 1e-5, 109), (0.3, 1e-2, 32), (3.0, 1e-5, 25), (100.0, 0.1, 1), (1e4, 1e-5, 0)):
        asked = []
        found = least(lambda orders, rho=rho, asked=asked: (asked.extend(orders), rho * orders)[1], delta)
        assert found == convert_rdp(rho * ORDERS, delta)
        assert len(set(asked)) == len(asked) == len(ORDERS) - spared


def test_rounds_add_up_whatever_their_order():
    account = RDPAccountant().compose_events
    apart = [gaussian(3.0), gaussian(2.0), gaussian(3.0)]
    together = [gaussian(2.0), gaussian(3.0, count=2)]
    assert account(apart, 1e-6).value == pytest.approx(account(together, 1e-6).value)
    # Three releases of 1 / sigma_i^2 are one of the sum.
    one = gaussian(1 / math.sqrt(1 / 4 + 2 / 9))
    assert account(apart, 1e-6).value == pytest.approx(account([one], 1e-6).value)
    assert account([gaussian(3.0)], 1e-6).value < account([gaussian(3.0, count=2)], 1e-6).value


def test_no_privacy_is_infinite_and_never_zero():
    event = gaussian(1.0, rdp=lambda orders: np.full_like(orders, np.inf))
    spent = RDPAccountant().compose_events([gaussian(5.0), event], 1e-5)
    assert spent.value == math.inf
    assert "epsilon = inf" in spent.describe()


def test_what_is_not_understood_is_refused():
    with pytest.raises(UnsupportedEvent, match="quantum noise: its Rényi divergence is not known"):
        RDPAccountant().compose_events([gaussian(1.0), gaussian(1.0, mechanism="quantum noise", rdp=None)], 1e-5)
    with pytest.raises(ConfigError, match="at least one"):
        RDPAccountant().compose_events([], 1e-5)
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            RDPAccountant().compose_events([gaussian(1.0)], delta)
    for change in ({"unit": "record"}, {"relation": "replace"}, {"sampling": "poisson"}, {"view": "each update"}):
        with pytest.raises(ConfigError, match="Account for each kind by itself"):
            RDPAccountant().compose_events([gaussian(1.0), gaussian(1.0, **change)], 1e-5)


def test_an_epsilon_says_what_it_means():
    events = [gaussian(5.0, count=10, assumptions=("a", "b")), gaussian(5.0, assumptions=("b", "c"))]
    spent = RDPAccountant().compose_events(events, 1e-5)
    assert spent.assumptions == ("a", "b", "c")
    text = spent.describe()
    for part in (
        "1e-05",
        "unit: client",
        "relation: add/remove",
        "sampling: none",
        "view: the sum",
        "RDP",
        "assumes: c",
    ):
        assert part in text


# --- the contract of every accountant -------------------------------------------------------------------------------


def poisson(noise_multiplier=1.0, sample_rate=0.05, steps=100, **changes):
    meaning = {"sampling": "poisson", "unit": "record", "view": "the model"} | changes
    return gaussian_event(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps, **meaning)


@pytest.fixture(params=sorted(ACCOUNTANTS))
def spent(request):
    accountant = accountant_named(request.param)
    return lambda *events, delta=1e-5: accountant.compose_events(events, delta).value


def rising(values):
    return all(low < high for low, high in pairwise(values))


def test_more_steps_cost_more(spent):
    assert rising([spent(poisson(steps=steps)) for steps in (1, 10, 100, 1000)])


def test_more_noise_costs_less(spent):
    assert rising([spent(poisson(noise)) for noise in (8.0, 2.0, 1.0, 0.7)])


def test_more_sampling_costs_more(spent):
    assert rising([spent(poisson(sample_rate=rate)) for rate in (0.001, 0.01, 0.1, 0.5, 1.0)])


def test_a_smaller_delta_costs_more(spent):
    assert rising([spent(poisson(), delta=delta) for delta in (1e-2, 1e-4, 1e-6, 1e-8)])


def test_equal_events_are_one_event_that_happened_often(spent):
    assert spent(poisson(steps=30), poisson(steps=20)) == pytest.approx(spent(poisson(steps=50)), rel=1e-12)
    assert spent(*[poisson(steps=1)] * 7) == pytest.approx(spent(poisson(steps=7)), rel=1e-12)


def test_the_order_of_events_does_not_matter_and_each_of_them_counts(spent):
    one, other = poisson(1.0), poisson(2.0, 0.1)
    assert spent(one, other) == pytest.approx(spent(other, one), abs=1e-6)
    assert max(spent(one), spent(other)) < spent(one, other)
    # Together they cost no more than one after the other, each with half of delta.
    assert spent(one, other) <= spent(one, delta=5e-6) + spent(other, delta=5e-6)


def test_ever_more_noise_costs_nothing_in_the_end(spent):
    """But for the numerical error of prv (0.01), and the largest order of rdp."""
    assert spent(poisson(1e5)) <= 0.0101


def test_epsilon_is_never_negative(spent):
    assert spent(poisson(50.0, 0.001, 1), delta=0.9) == 0.0


def test_the_same_question_has_the_same_answer(spent):
    assert spent(poisson()) == spent(poisson())


def test_what_no_accountant_takes(spent):
    with pytest.raises(ConfigError, match="at least one"):
        spent()
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            spent(poisson(), delta=delta)
    with pytest.raises(UnsupportedEvent, match="quantum noise"):
        spent(
            poisson(),
            gaussian(1.0, mechanism="quantum noise", rdp=None, unit="record", sampling="poisson", view="the model"),
        )
    for change in ({"unit": "client"}, {"view": "each update"}):
        with pytest.raises(ConfigError, match="Account for each kind by itself"):
            spent(poisson(), poisson(**change))
    with pytest.raises(ConfigError, match="Account for each kind by itself"):
        spent(poisson(), poisson(sample_rate=1.0, sampling="none"))


def test_an_accountant_is_found_by_name():
    assert isinstance(accountant_named("rdp"), RDPAccountant)
    with pytest.raises(UnknownName, match="'prv'"):
        accountant_named("pvr")


# --- what each of them promises -------------------------------------------------------------------------------------


def test_an_estimate_says_that_it_is_none():
    for name, bound in (("rdp", True), ("prv", True), ("gdp", False)):
        found = accountant_named(name).compose_events([poisson()], 1e-5)
        assert found.bound is bound
        assert ("an estimate, no bound" in found.describe()) is not bound
        assert any("the true epsilon may be larger" in text for text in found.assumptions) is not bound
    assert "estimate" in accountant_named("gdp").name


def test_the_estimate_can_be_too_small():
    """Reference value by privacy loss distributions: 1.828."""
    event = poisson(1.0, 0.01, 1000)
    gdp, prv = (accountant_named(name).compose_events([event], 1e-5).value for name in ("gdp", "prv"))
    assert gdp < 1.7 < 1.828 < prv


def test_the_estimate_as_the_paper_has_it():
    """Bu et al. 2020, Corollary 4: mu = q sqrt(T (exp(1 / s^2) - 1)), and the curve of one Gaussian mechanism."""
    for q, s, steps in ((0.01, 1.0, 1000), (0.05, 0.8, 300)):
        mu = q * math.sqrt(steps * math.expm1(s**-2))
        e = accountant_named("gdp").compose_events([poisson(s, q, steps)], 1e-5).value
        normal = NormalDist()
        delta = normal.cdf(mu / 2 - e / mu) - math.exp(e) * normal.cdf(-mu / 2 - e / mu)
        assert delta == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "event", "delta"),
    [
        ("prv", poisson(0.05, 0.1, 200), 1e-5),  # a loss of 39,000
        ("prv", poisson(1.0, 0.5, 10**7), 1e-5),
        ("prv", poisson(20.0, 0.5, 10**6), 1e-5),  # too many points
        ("prv", poisson(), 1e-11),
        ("gdp", poisson(0.02, 0.1, 200), 1e-5),
        ("gdp", poisson(0.5, 0.5, 1000), 1e-5),
    ],
)
def test_beyond_its_arithmetic_an_accountant_points_to_rdp(name, event, delta):
    with pytest.raises(OutOfRange, match="Use the accountant rdp") as caught:
        accountant_named(name).compose_events([event], delta)
    assert "\n" not in str(caught.value)
    assert accountant_named("rdp").compose_events([event], delta).value > 0


def test_the_worst_case_pair_is_enough_for_prv():
    """An event of another mechanism with a Gaussian's worst case counts as that Gaussian."""
    event = gaussian(1.0, rdp=None, gaussian=SubsampledGaussian(noise_multiplier=5.0, sample_rate=1.0), count=10)
    assert accountant_named("prv").compose_events([event], 1e-5).value == pytest.approx(2.605, abs=5e-4)


# --- parties with disjoint data -------------------------------------------------------------------------------------


def test_disjoint_parties_spend_the_largest_of_theirs_and_never_the_sum():
    account = accountant_named("prv").compose_events
    apart = [account([poisson(noise)], 1e-5) for noise in (1.0, 0.8, 2.0)]
    together = parallel(apart, 20)
    assert together.value == max(one.value for one in apart) == apart[1].value
    assert "no record is with two of the 20 parties" in together.assumptions  # parties, not the kinds of them
    assert set(together.assumptions) > {text for one in apart for text in one.assumptions}
    assert parallel(apart[:1], 1) == apart[0]  # a single party has nobody to share a record with


def test_bounds_by_two_accountants_are_put_together_and_both_named():
    tight, loose = (
        accountant_named("prv").compose_events([poisson(2.0)], 1e-5),
        accountant_named("rdp").compose_events([poisson()], 1e-5),
    )
    together = parallel([tight, loose], 2)
    assert together.value == loose.value
    assert tight.accountant in together.accountant and loose.accountant in together.accountant


def test_only_what_means_the_same_is_put_together():
    account = accountant_named("rdp").compose_events
    one = account([poisson()], 1e-5)
    for other in (
        account([poisson(unit="client")], 1e-5),
        account([poisson()], 1e-6),
        account([poisson(sampling="fixed")], 1e-5),
        accountant_named("gdp").compose_events([poisson()], 1e-5),
    ):
        with pytest.raises(ConfigError, match="Report each kind by itself") as caught:
            parallel([one, other], 2)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="at least one"):
        parallel([], 1)
