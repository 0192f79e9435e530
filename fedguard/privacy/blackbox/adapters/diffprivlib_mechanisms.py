"""Mechanisms of diffprivlib for one number, which is clipped to a range as wide as the sensitivity: all values are neighbors.

`diffprivlib.mechanisms` alone is needed: the package's models do not import beside each version of scikit-learn.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import ConfigError
from fedguard.privacy.blackbox.adapters.contract import ForeignRelease, Function, copy_fresh
from fedguard.privacy.blackbox.claim import EpsilonClaim, Law, NoiseParameters
from fedguard.privacy.blackbox.mechanism import Shape

#: Law of the noise, by class.
LAWS: dict[str, Law] = {"Laplace": "laplace", "Gaussian": "gaussian", "GaussianAnalytic": "gaussian"}


def adapt(found: Any, _: Sequence[Shape]) -> ForeignRelease | None:
    """A mechanism with `randomise` and a sensitivity.

    Raises:
        ConfigError: its values are no numbers.
    """
    if isinstance(found, type) or not hasattr(found, "randomise"):
        return None
    name = type(found).__name__
    width = getattr(found, "sensitivity", None)
    if width is None:
        raise ConfigError(f"--mechanism: {name}: expected a mechanism of numbers with a sensitivity; it has none.")
    law = LAWS.get(name)
    facts = None
    if law is not None:
        scale = width / (found.epsilon - math.log(1 - found.delta)) if law == "laplace" else found._scale
        facts = NoiseParameters(law=law, scale=scale, clip=width / 2)
    claim = EpsilonClaim(epsilon=found.epsilon, delta=found.delta, relation="replace", law=law, unit="one number")
    # Without a seed it draws from the operating system, whose generator cannot be copied
    copy = found.copy if found.random_state is None else lambda: copy_fresh(found)
    return ForeignRelease(
        make=lambda: _release_by(copy(), width), claim=claim, facts=facts, shapes=((1,),), scalars=True
    )


def import_mechanisms() -> Any:
    """`diffprivlib.mechanisms` without the package's models, which do not import beside each version of scikit-learn.

    Raises:
        ConfigError: diffprivlib is not installed.
    """
    if "diffprivlib" not in sys.modules:
        spec = importlib.util.find_spec("diffprivlib")
        if spec is None:
            raise ConfigError("diffprivlib is not installed: `pip install diffprivlib`.")
        bare = importlib.util.module_from_spec(spec)  # its own __init__ would import the models
        sys.modules["diffprivlib"] = bare
    return importlib.import_module("diffprivlib.mechanisms")


def _release_by(mechanism: Any, width: float) -> Function:
    lower, upper = getattr(mechanism, "lower", None), getattr(mechanism, "upper", None)
    center = 0.0 if lower is None or upper is None or not math.isfinite(upper - lower) else (lower + upper) / 2
    whole = type(mechanism).__name__.startswith("Geometric")

    def release(update: list[NDArray[Any]]) -> list[NDArray[Any]]:
        value = center + float(np.clip(float(update[0][0]), -width / 2, width / 2))
        if whole:
            value = int(math.copysign(math.floor(abs(value)), value))
        return [np.asarray([mechanism.randomise(value)], float)]

    return release
