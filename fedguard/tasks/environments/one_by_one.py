"""What environments have in common that come as objects with gymnasium's interface, and are stepped one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Box, Choices, Environment, Step
from fedguard.contracts.user_function import FAILURES
from fedguard.errors import ConfigError, oneline, require


@dataclass(frozen=True)
class Copies:
    """Environments side by side, what is observed of each, and how many steps it has taken since its start.

    They are gymnasium's own objects, which change as they are stepped: so each step is taken on copies.
    """

    each: tuple[Any, ...]
    seen: NDArray[np.float32]
    steps: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class OneByOne(Environment):
    """Environments with gymnasium's interface, stepped one by one.

    ``reset(seed=...)`` gives ``(observation, info)``, and ``step(action)`` gives ``(observation, reward, terminated, truncated,
    info)``; ``observation_space`` has a ``shape``, and ``action_space`` is a ``Discrete`` or a bounded ``Box`` of one axis.
    An environment has to be one that ``copy.deepcopy`` copies whole.
    """

    best: ClassVar[float] = 0.0
    limit: ClassVar[int] = 1000

    def made(self) -> Any:
        """A fresh environment."""
        raise NotImplementedError

    @cached_property
    def _first(self) -> Any:
        return self.made()

    @property
    def _told(self) -> str:
        return str(self)

    @property
    def shape(self) -> tuple[int, ...]:
        shape = getattr(getattr(self._first, "observation_space", None), "shape", None)
        got = _space(self._first, "observation")
        require(bool(shape), f"{self._told}: expected an observation_space that is a Box; got {got}.")
        return tuple(int(side) for side in shape or ())

    @property
    def actions(self) -> Choices | Box:
        space = getattr(self._first, "action_space", None)
        if (choices := getattr(space, "n", None)) is not None and not getattr(space, "start", 0):
            return Choices(int(choices))
        low, high = np.atleast_1d(getattr(space, "low", np.inf)), np.atleast_1d(getattr(space, "high", np.inf))
        bounded = low.ndim == 1 and np.isfinite([low, high]).all() and (low == low[0]).all() and (high == high[0]).all()
        require(
            bool(bounded),
            f"{self._told}: expected an action_space that is Discrete from 0, or a Box of one axis with the same finite bounds "
            f"for all; got {_space(self._first, 'action')}.",
        )
        return Box(len(low), float(low[0]), float(high[0]))

    def started(self, copies: int, rng: np.random.Generator) -> Copies:
        each = tuple(copy.deepcopy(self._first) for _ in range(copies))
        return Copies(each, np.stack([self._reset(one, rng) for one in each]), np.zeros(copies, np.int64))

    def observed(self, state: Copies) -> NDArray[np.float32]:
        return state.seen

    def stepped(self, state: Copies, actions: NDArray[Any]) -> Step:
        each = tuple(copy.deepcopy(one) for one in state.each)
        whole = isinstance(self.actions, Choices)
        told = [
            self.asked(one.step, int(action) if whole else action.astype(np.float32))
            for one, action in zip(each, actions, strict=True)
        ]
        seen, rewards, terminated, truncated = (np.array([one[part] for one in told]) for part in range(4))
        steps = state.steps + 1
        after = Copies(each, seen.astype(np.float32), steps)
        return Step(
            after, rewards.astype(np.float64), terminated.astype(bool), truncated.astype(bool) | (steps >= self.limit)
        )

    def restarted(self, state: Copies, over: NDArray[np.bool_], rng: np.random.Generator) -> Copies:
        each, seen = list(state.each), state.seen.copy()
        for number in np.flatnonzero(over):
            each[number] = copy.deepcopy(each[number])
            seen[number] = self._reset(each[number], rng)
        return Copies(tuple(each), seen, np.where(over, 0, state.steps))

    def _reset(self, one: Any, rng: np.random.Generator) -> NDArray[np.float32]:
        def reset() -> NDArray[np.float32]:
            seen = np.asarray(one.reset(seed=int(rng.integers(2**31)))[0], np.float32)
            require(seen.shape == self.shape, f"expected observations of shape {self.shape}; got {seen.shape}")
            return seen

        return self.asked(reset)  # type: ignore[no-any-return]

    def asked(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What a call of the user's or gymnasium's code returns; its failure is one line."""
        try:
            return call(*arguments)
        except FAILURES as error:
            raise ConfigError(f"{self._told}: failed: {type(error).__name__}: {oneline(error)}.") from error


def _space(environment: Any, which: str) -> str:
    return str(getattr(environment, f"{which}_space", "none"))
