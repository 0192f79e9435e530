"""Measurements of OpenDP: inputs are clipped to length 1 in the measurement's metric, so two are at most 2 apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

from fedguard.errors import ConfigError, oneline
from fedguard.privacy.blackbox.adapters.contract import ForeignRelease, Function
from fedguard.privacy.blackbox.claim import EpsilonClaim
from fedguard.privacy.blackbox.mechanism import Shape

#: Largest distance of two inputs of length 1.
APART = 2.0
#: Delta at which a claim in zero-concentrated differential privacy is stated.
DELTA = 1e-5


def adapt(found: Any, _: Sequence[Shape]) -> ForeignRelease | None:
    """A measurement, with its own privacy map as the claim.

    Raises:
        ConfigError: it takes neither numbers nor vectors of numbers.
    """
    if not isinstance(found, dp.Measurement):
        return None
    metric, vector = str(found.input_metric), "VectorDomain" in str(found.input_domain)
    order = 2 if "L2" in metric else 1
    if "f64" not in str(found.input_domain) and "f32" not in str(found.input_domain):
        raise ConfigError(f"--mechanism: expected a measurement of floating-point numbers; got {found.input_domain}.")
    size = _size(str(found.input_domain)) if vector else 1
    own: tuple[Shape, ...] | None = None if size is None else ((size,),)
    return ForeignRelease(make=lambda: _release_by(found, order, vector), claim=_claim(found), shapes=own, scalars=True)


def _release_by(measurement: Any, order: int, vector: bool) -> Function:
    def release(update: list[NDArray[Any]]) -> list[NDArray[Any]]:
        flat = np.concatenate([one.ravel() for one in update]).astype(float)
        clipped = flat * min(1.0, 1 / max(float(np.linalg.norm(flat, order)), 1e-300))
        left = measurement(clipped.tolist() if vector else float(clipped[0]))
        return [np.atleast_1d(np.asarray(left, float))]

    return release


def _size(domain: str) -> int | None:
    _, found, size = domain.partition("size=")
    return int("".join(digit for digit in size if digit.isdigit())) if found else None


def _claim(measurement: Any) -> EpsilonClaim:
    """The measurement's map at the largest distance; for zCDP at one delta, by OpenDP's own conversion."""
    try:
        if "ZeroConcentrated" in str(measurement.output_measure):
            profile = dp.c.make_zCDP_to_approxDP(measurement).map(APART)
            return EpsilonClaim(epsilon=profile.epsilon(DELTA), delta=DELTA, relation="replace", unit="one vector")
        promised = measurement.map(APART)
    except Exception as error:
        raise ConfigError(f"--mechanism: the measurement's map raised {oneline(error)}.") from error
    epsilon, delta = promised if isinstance(promised, tuple) else (promised, 0.0)
    if not (isinstance(epsilon, (int, float)) and math.isfinite(epsilon) and epsilon > 0):
        raise ConfigError(f"--mechanism: expected a measurement whose map gives an epsilon; got {promised!r}.")
    return EpsilonClaim(epsilon=epsilon, delta=delta, relation="replace", unit="one vector")
