"""What the noise of a suite comes to: who counts it, and the least of it that keeps an epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from fedguard.contracts import DistributedNoise
from fedguard.privacy.accountants import SMALLEST_DELTA, accountant_named
from fedguard.privacy.accounting import Epsilon, Event, OutOfRange
from fedguard.privacy.calibration import calibrate, gaussian_noise
from fedguard.privacy.distributed import DistributedDP

#: What all Gaussian noise here rests on.
ASSUMPTIONS = (
    "the noise is secret: in an experiment it comes from the trial's seed",
    "the noise is real: the rounding of floats is not accounted for",
)


def accountant(delta: float) -> str:
    """The tightest accountant that resolves a delta."""
    return "rdp" if delta < SMALLEST_DELTA else "prv"


def spent(events: Sequence[Event], delta: float) -> list[Epsilon]:
    """What each of the events costs by itself: by the tightest accountant, or by RDP where that cannot count it."""
    return [_spent(event, delta) for event in events]


def _spent(event: Event, delta: float) -> Epsilon:
    try:
        return accountant_named(accountant(delta)).spent([event], delta)
    except OutOfRange:
        return accountant_named("rdp").spent([event], delta)


@lru_cache(maxsize=64)
def least_noise(*, epsilon: float, delta: float, sample_rate: float, steps: int, sampling: str) -> float:
    """The least noise multiplier with which so many steps keep within ``epsilon``.

    Raises:
        ConfigError: an epsilon that no noise reaches.
    """
    return gaussian_noise(
        epsilon=epsilon,
        delta=delta,
        sample_rate=sample_rate,
        steps=steps,
        sampling=sampling,
        accountant=accountant(delta),
    )


@lru_cache(maxsize=64)
def distributed(noise: DistributedNoise, *, rounds: int, contributors: int, dim: int, scale: float) -> DistributedDP:
    """The noise that clients share out; where the suite names an epsilon alone, the least that keeps it.

    Args:
        rounds, contributors, dim, scale: as in `fedguard.privacy.calibration.calibrate`.

    Raises:
        ConfigError: an epsilon that no noise reaches.
    """
    if noise.noise_multiplier is not None:
        return DistributedDP(**noise.parameters)
    assert noise.epsilon is not None  # `fedguard.config.protocol.check`
    any_noise = DistributedDP(**{**noise.parameters, "noise_multiplier": 1.0})
    return calibrate(any_noise, epsilon=noise.epsilon, rounds=rounds, contributors=contributors, dim=dim, scale=scale)
