"""Calibration: the noise that a target epsilon needs, and the fewest contributors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from fedguard.errors import ConfigError, require
from fedguard.privacy.accountants import accountant_named
from fedguard.privacy.accounting import OutOfRange
from fedguard.privacy.distributed import DistributedDP
from fedguard.privacy.gaussian import VIEWS, gaussian_event
from fedguard.privacy.mechanisms import mechanism_named

#: Range of the noise multipliers: the smallest one keeps nothing private, and accountants do not resolve more than the largest.
SMALLEST, LARGEST = 1e-2, 2.0**20


def gaussian_noise(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    sampling: str = "poisson",
    unit: str = "record",
    relation: str | None = None,
    accountant: str = "prv",
) -> float:
    """The least noise multiplier with which ``steps`` steps keep within ``epsilon``, to one part in ten thousand from above.

    If the accountant cannot count an epsilon this large, the least noise that it can count is returned.

    Args:
        epsilon: the target.
        accountant: "rdp" or "prv"; with "gdp" the result keeps an estimate within epsilon, and proves nothing.
        delta, sample_rate, steps, sampling, unit, relation: as in `fedguard.privacy.gaussian.gaussian_event`.

    Raises:
        ConfigError: a target that no noise reaches by this accountant, or a parameter out of its range.
    """
    _check(epsilon, steps)
    account = accountant_named(accountant).compose_events

    @cache
    def excess(logarithm: float) -> float:
        """Logarithm of epsilon over the target, at the noise ``exp(logarithm)``."""
        noise = math.exp(logarithm)
        event = gaussian_event(
            noise_multiplier=noise,
            sample_rate=sample_rate,
            steps=steps,
            sampling=sampling,
            unit=unit,
            relation=relation,
            view=VIEWS.get(unit, ""),
        )
        try:
            # Epsilon falls about as a power of the noise: in logarithms of both, Brent's method needs few compositions of up to
            # some seconds each. Accountants return 0 for much noise, which has no logarithm.
            return math.log(max(account([event], delta).value, 1e-30) / epsilon)
        except OutOfRange:  # too little noise for its arithmetic, unless it is something else
            if noise >= LARGEST:
                raise
            return math.log(1e3)

    # Brackets double from noise 1, since arithmetic may fail at either end of the range.
    high = 0.0
    while excess(high) > 0:
        high += math.log(2)
        require(
            high <= math.log(LARGEST),
            f"epsilon: {epsilon:g} at delta = {delta:g} is out of reach for {steps} steps by the accountant {accountant}, with "
            "any noise. Raise epsilon, or use another accountant.",
        )
    low = high - math.log(2)
    while excess(low) <= 0:
        if low < math.log(SMALLEST):
            return math.exp(low)
        low, high = low - math.log(2), low
    return math.exp(_root(excess, low, high, 1e-4))


def calibrate(
    plan: DistributedDP, *, epsilon: float, rounds: int, contributors: int, dim: int, scale: float
) -> DistributedDP:
    """The plan with the least noise multiplier that keeps ``rounds`` rounds within ``epsilon`` at the plan's delta.

    Found by bisection, since epsilon falls as the noise grows, to within one part in a million from above.

    Args:
        plan: its noise multiplier is ignored.
        epsilon: the target.
        rounds: number of rounds that are composed.
        contributors: honest clients with noise that is surely in each sum.
        dim, scale: as in `DistributedDP.for_round`.

    Raises:
        ConfigError: a target that no noise of the mechanism on this grid reaches.
    """
    _check(epsilon, rounds)
    kind = mechanism_named(plan.mechanism)

    def with_noise(sigma: float) -> DistributedDP:
        return replace(plan, noise_multiplier=sigma * math.sqrt(contributors) / (plan.clip * scale))

    def enough(sigma: float) -> bool:
        spent = with_noise(sigma).account_rounds([contributors] * rounds, expected=contributors, dim=dim, scale=scale)
        return spent.value <= epsilon

    # Searched by one client's sigma, which has the bounds. The margin covers the way to z and back, which rounds.
    low, high = kind.smallest * (1 + 1e-9), kind.largest * (1 - 1e-9)
    require(
        enough(high),
        f"epsilon: {epsilon:g} at delta = {plan.delta:g} is out of reach for {kind.name} over {rounds} rounds with "
        f"{contributors} contributors. Raise epsilon or contributors, or lower rounds or the encoding's bits.",
    )
    # Below the smallest sigma the sampler is not exact or the bound not proven, so more noise than needed is returned.
    if enough(low):
        return with_noise(low)
    return with_noise(_bisect_threshold(enough, low, high, 1e-6))


def minimum(plan: DistributedDP, *, epsilon: float, rounds: int, expected: int, dim: int, scale: float) -> int:
    """The fewest contributors with which a round may go on: with fewer it must abort, or ``rounds`` rounds exceed epsilon.

    Args:
        expected: contributors among which the noise is shared out.

    Raises:
        ConfigError: not even the expected contributors suffice.
    """
    _check(epsilon, rounds)

    def compute_epsilon(contributors: int) -> float:
        return plan.account_rounds([contributors] * rounds, expected=expected, dim=dim, scale=scale).value

    if compute_epsilon(expected) > epsilon:
        raise ConfigError(
            f"epsilon: {rounds} rounds with {expected} contributors spend {compute_epsilon(expected):.4g}; expected at most "
            f"{epsilon:g}. Raise noise_multiplier or epsilon, or run fewer rounds."
        )
    # No contributor means no noise and an infinite epsilon. Bounds never rise with contributors: `DiscreteGaussian.rdp` sees to
    # that itself.
    low, high = 0, expected
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if compute_epsilon(middle) <= epsilon else (middle, high)
    return high


def _root(excess: Callable[[float], float], low: float, high: float, precision: float) -> float:
    """The root of a falling function, from above; it is positive at ``low`` and not at ``high``."""
    from scipy.optimize import brentq

    # The root may be off to either side, and just below it epsilon is broken: step up until the target is kept.
    found = float(brentq(excess, low, high, xtol=precision / 4))
    while excess(found) > 0:
        found += precision / 4
    return min(found, high)


def _bisect_threshold(enough: Callable[[float], bool], low: float, high: float, precision: float) -> float:
    """The least value that is enough, from above; ``low`` is not enough, ``high`` is."""
    while high / low > 1 + precision:
        # Geometric, for sigma spans up to ten orders of magnitude.
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(epsilon: float, rounds: int) -> None:
    require(0 < epsilon < math.inf, f"epsilon: expected a positive number; got {epsilon}.")
    require(rounds >= 1, f"rounds: expected at least 1; got {rounds}.")
