"""The accountant composes, converts and refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedguard.errors import ConfigError
from fedguard.privacy.accounting import ORDERS, Event, RDPAccountant, UnsupportedEvent, converted


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
    value = RDPAccountant().spent([gaussian(5.0, count=10)], 1e-5).value
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
        assert converted(rdp, delta) == pytest.approx(max(0.0, best))


def test_orders_reach_far_enough_for_tiny_and_huge_epsilons():
    """The best of all orders, from the closed form of the Gaussian's conversion on a fine grid."""
    for rho in (1e-6, 1e-3, 1.0, 100.0, 1e4):
        fine = 1 + np.geomspace(1e-5, 1e9, 200_000)
        best = (rho * fine + np.log1p(-1 / fine) - (math.log(1e-5) + np.log(fine)) / (fine - 1)).min()
        assert best - 1e-12 <= converted(rho * ORDERS, 1e-5) <= 1.02 * best


def test_rounds_add_up_whatever_their_order():
    account = RDPAccountant().spent
    apart = [gaussian(3.0), gaussian(2.0), gaussian(3.0)]
    together = [gaussian(2.0), gaussian(3.0, count=2)]
    assert account(apart, 1e-6).value == pytest.approx(account(together, 1e-6).value)
    # Three releases of 1 / sigma_i^2 are one of the sum.
    one = gaussian(1 / math.sqrt(1 / 4 + 2 / 9))
    assert account(apart, 1e-6).value == pytest.approx(account([one], 1e-6).value)
    assert account([gaussian(3.0)], 1e-6).value < account([gaussian(3.0, count=2)], 1e-6).value


def test_no_privacy_is_infinite_and_never_zero():
    event = gaussian(1.0, rdp=lambda orders: np.full_like(orders, np.inf))
    spent = RDPAccountant().spent([gaussian(5.0), event], 1e-5)
    assert spent.value == math.inf
    assert "epsilon = inf" in spent.describe()


def test_what_is_not_understood_is_refused():
    with pytest.raises(UnsupportedEvent, match="quantum noise: its Rényi divergence is not known"):
        RDPAccountant().spent([gaussian(1.0), gaussian(1.0, mechanism="quantum noise", rdp=None)], 1e-5)
    with pytest.raises(ConfigError, match="at least one"):
        RDPAccountant().spent([], 1e-5)
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            RDPAccountant().spent([gaussian(1.0)], delta)
    for change in ({"unit": "record"}, {"relation": "replace"}, {"sampling": "poisson"}, {"view": "each update"}):
        with pytest.raises(ConfigError, match="Account for each kind by itself"):
            RDPAccountant().spent([gaussian(1.0), gaussian(1.0, **change)], 1e-5)


def test_an_epsilon_says_what_it_means():
    events = [gaussian(5.0, count=10, assumptions=("a", "b")), gaussian(5.0, assumptions=("b", "c"))]
    spent = RDPAccountant().spent(events, 1e-5)
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
