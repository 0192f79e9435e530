"""What environments with gymnasium's interface say, held against that interface: spaces, starts and steps.

Each check raises `UnexpectedAnswer` with what was expected and what came; who asks adds the environment and the step.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Box, Choices
from fedguard.contracts.return_checks import describe_value
from fedguard.errors import brief

STARTS = "(observation, info)"
STEPS = "(observation, reward, terminated, truncated, info)"
OLD = ", as gym had it before 0.26. Return"


class UnexpectedAnswer(Exception):
    """Something else than gymnasium's interface has, in words without a full stop."""


def shape_of(space: Any) -> tuple[int, ...]:
    """The shape of observations, by a space that has one."""
    shape = getattr(space, "shape", None)
    if not isinstance(shape, (tuple, list)) or not shape or not all(_natural(side) for side in shape):
        raise UnexpectedAnswer(
            "expected an observation_space that is a Box, with a shape such as (4,); got "
            f"{'none' if space is None else brief(space)}"
        )
    return tuple(int(side) for side in shape)


def actions_of(space: Any) -> Choices | Box:
    """What may be done, by a space like `Discrete` (n) or like `Box` (low, high).

    A length is no number of choices, though both are called n: MultiBinary has a shape beside it.
    """
    n, shape = getattr(space, "n", None), getattr(space, "shape", None)
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if _natural(n) and not shape and low is None and high is None and not getattr(space, "start", 0):
        return Choices(int(n))
    found = _box(low, high, shape, getattr(space, "dtype", None)) if n is None else None
    if found is None:
        raise UnexpectedAnswer(
            "expected an action_space that is Discrete from 0, or a Box of one axis with the same finite bounds for all; got "
            f"{'none' if space is None else brief(space)}"
        )
    return found


def _box(low: Any, high: Any, shape: Any, dtype: Any) -> Box | None:
    try:
        ends = np.atleast_1d(np.asarray(low, np.float64)), np.atleast_1d(np.asarray(high, np.float64))
        below, above = (np.broadcast_to(end, tuple(shape)) for end in ends) if shape else np.broadcast_arrays(*ends)
        of_floats = dtype is None or np.dtype(dtype).kind == "f"
    except (TypeError, ValueError):
        return None
    bounded = below.ndim == 1 and below.size > 0 and bool(np.isfinite([below, above]).all())
    if not bounded or not of_floats or (below != below[0]).any() or (above != above[0]).any() or below[0] >= above[0]:
        return None
    return Box(len(below), float(below[0]), float(above[0]))


def start(answer: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The observation of ``reset``."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        old = "" if isinstance(answer, tuple) else f"{OLD} (observation, {{}})"
        raise UnexpectedAnswer(f"expected {STARTS}; got {_values(answer)}{old}")
    return _parse_observation(answer[0], shape)


def step(answer: Any, shape: tuple[int, ...]) -> tuple[NDArray[np.float32], float, bool, bool]:
    """Observation, reward, terminated and truncated of ``step``."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 5:
        old = f"{OLD} (observation, reward, done, False, info)" if _values(answer) == "4 values" else ""
        raise UnexpectedAnswer(f"expected {STEPS}; got {_values(answer)}{old}")
    observation, reward, terminated, truncated, _ = answer
    return (
        _parse_observation(observation, shape),
        _reward(reward),
        _flag("terminated", terminated),
        _flag("truncated", truncated),
    )


def _parse_observation(observation: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    try:
        found = np.asarray(observation)
    except ValueError:  # lists of several lengths
        found = np.empty((), object)
    if found.dtype.kind not in "biuf":
        raise UnexpectedAnswer(
            f"expected an observation of numbers, of shape {shape}; got {describe_value(observation)}"
        )
    if found.shape != shape:
        raise UnexpectedAnswer(f"expected observations of shape {shape}; got {found.shape}")
    with np.errstate(over="ignore"):
        kept: NDArray[np.float32] = found.astype(np.float32)
    if not np.isfinite(kept).all():
        bad = found[~np.isfinite(kept)].flat[0]
        raise UnexpectedAnswer(f"expected observations that are finite in float32; one holds {bad}")
    return kept


def _reward(reward: Any) -> float:
    found = np.asarray(reward) if np.isscalar(reward) or hasattr(reward, "shape") else np.empty((), object)
    if found.ndim or found.dtype.kind not in "biuf":
        raise UnexpectedAnswer(f"expected a reward that is one number; got {describe_value(reward)}")
    if not math.isfinite(value := float(found)):
        raise UnexpectedAnswer(f"expected a finite reward; got {value}")
    return value


def _flag(which: str, value: Any) -> bool:
    found = np.asarray(value) if hasattr(value, "shape") else value
    if isinstance(found, np.ndarray):
        found = found[()] if found.ndim == 0 else found
    if not isinstance(found, (bool, np.bool_)):
        raise UnexpectedAnswer(f"expected {which} to be True or False; got {describe_value(value)}")
    return bool(found)


def _natural(value: Any) -> TypeGuard[int]:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) > 0


def _values(answer: Any) -> str:
    return f"{len(answer)} values" if isinstance(answer, (tuple, list)) else describe_value(answer)
