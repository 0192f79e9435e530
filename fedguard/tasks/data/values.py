"""Checks of the values of arrays from any source: inputs that float32 keeps exactly enough, and valid labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import ConfigError, brief

#: The largest number that float32 holds, in which inputs are kept.
LARGEST = float(np.finfo(np.float32).max)
#: What is said of numbers in tables and arrays.
BEYOND = "whole numbers beyond 2^53, which look alike as floats"


def check_inputs(where: str, x: NDArray[Any]) -> None:
    """Refuse what float32 does not hold, and whole numbers that floats do not tell apart.

    Raises:
        ConfigError: there is such a value.
    """
    if x.dtype.kind not in "biuf":
        raise ConfigError(f"{where}: expected inputs that are numbers; got {x.dtype}.")
    if x.dtype.kind == "f":
        _check_finite(where, "inputs", x)
        if abs(most := max(float(x.min()), float(x.max()), key=abs)) > LARGEST:
            raise ConfigError(
                f"{where}: expected inputs from {-LARGEST:.3g} to {LARGEST:.3g}, which float32 holds; got {most:.4g}. Write "
                "them in a larger unit, or take their logarithm."
            )
    elif _look_alike(x):
        raise ConfigError(
            f"{where}: expected inputs that are numbers; got {BEYOND}. If they name rows, leave them out; if they are times, "
            "count them from the first."
        )


def check_names(where: str, what: str, values: NDArray[Any]) -> None:
    """Refuse labels or clients that are neither finite numbers nor texts with something in them.

    Raises:
        ConfigError: they are not.
    """
    if values.dtype.kind not in "biufU":
        remedy = " Texts are of dtype str." if values.dtype.kind in "OS" else ""
        raise ConfigError(f"{where}: expected {what} that are numbers or texts; got {values.dtype}.{remedy}")
    if values.dtype.kind == "f":
        _check_finite(where, what, values)
    elif values.dtype.kind == "U" and len(empty := np.flatnonzero(np.char.strip(values) == "")):
        raise ConfigError(
            f"{where}: expected {what} that are not empty; got {brief(str(values[empty[0]]))} for {len(empty)} examples, first "
            f"for example {empty[0] + 1}. Fill or drop them."
        )


def _check_finite(where: str, what: str, values: NDArray[Any]) -> None:
    if not np.isfinite(values.min()) or not np.isfinite(values.max()):  # NaN comes through both
        raise ConfigError(f"{where}: expected finite {what}; some are NaN or infinite. Fill or drop them.")


def _look_alike(x: NDArray[Any]) -> bool:
    """Whether some of the whole numbers are others as float64."""
    if x.dtype.kind == "b" or x.dtype.itemsize < 8 or max(-int(x.min()), int(x.max())) <= 2**53:
        return False
    large = np.unique(x[(x > 2**53) | (x < -(2**53))] if x.dtype.kind == "i" else x[x > 2**53])
    return any(int(float(one)) != one for one in large.tolist())
