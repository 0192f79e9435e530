"""Assumptions of Gaussian noise, and the least noise that keeps an epsilon."""

from __future__ import annotations

from functools import lru_cache

from fedguard.privacy.accountants import tightest
from fedguard.privacy.calibration import gaussian_noise

#: Assumptions of all Gaussian noise in this package.
ASSUMPTIONS = (
    "the noise is secret, and so is each draw of a sampling that is counted on",
    "the noise is real: the rounding of floats is not accounted for",
)


@lru_cache(maxsize=64)
def least_noise(*, epsilon: float, delta: float, sample_rate: float, steps: int, sampling: str) -> float:
    """The least noise multiplier with which ``steps`` steps keep within ``epsilon``.

    Raises:
        ConfigError: an epsilon that no noise reaches.
    """
    # Calibrated by the accountant that will report the epsilon; with another one the report could exceed the target.
    return gaussian_noise(
        epsilon=epsilon,
        delta=delta,
        sample_rate=sample_rate,
        steps=steps,
        sampling=sampling,
        accountant=tightest(delta),
    )
