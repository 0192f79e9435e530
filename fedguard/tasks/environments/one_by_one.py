"""What environments have in common that come as objects with gymnasium's interface, and are stepped one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Box, Choices, Environment, Step
from fedguard.contracts.user_function import FAILURES
from fedguard.errors import ConfigError, oneline, require
from fedguard.tasks.environments.answers import UnexpectedAnswer, actions_of, shape_of
from fedguard.tasks.environments.answers import start as start_of
from fedguard.tasks.environments.answers import step as step_of

Found = TypeVar("Found")


@dataclass(frozen=True)
class Copies:
    """Environments side by side, what is observed of each, and how many steps it has taken since its start.

    They are gymnasium's own objects, which change as they are stepped: so each step is taken on copies.
    """

    each: tuple[Any, ...]
    seen: NDArray[np.float32]
    steps: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SequentialEnvironment(Environment):
    """Environments with gymnasium's interface, stepped one by one.

    ``reset(seed=...)`` gives ``(observation, info)``, and ``step(action)`` gives ``(observation, reward, terminated, truncated,
    info)``: finite numbers in the shape of the observation_space, one finite number, and two of True or False, at each step.
    ``observation_space`` has a ``shape``, and ``action_space`` is a ``Discrete`` or a bounded ``Box`` of one axis.
    An environment has to be one that ``copy.deepcopy`` copies whole, and its chance comes from the seed alone.

    Args:
        least, most: that an episode can return, so that no interval of a mean return passes them; None where that is not known.
    """

    best: ClassVar[float] = 0.0
    limit: ClassVar[int] = 1000

    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.least is not None and self.most is not None
        require(
            known or self.least is self.most,
            f"{self.name}: expected both least and most of an episode's return, or none.",
        )
        if self.least is not None and self.most is not None:
            require(
                self.least < self.most and self.best <= self.most,
                f"{self.name}: expected least < most and good <= most; got least {self.least:g}, most {self.most:g} and good "
                f"{self.best:g}.",
            )

    @property
    def bounds(self) -> tuple[float, float] | None:
        return None if self.least is None or self.most is None else (self.least, self.most)

    def make_environment(self) -> Any:
        """A fresh environment."""
        raise NotImplementedError

    @cached_property
    def _first(self) -> Any:
        return self.make_environment()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._run_check(shape_of, getattr(self._first, "observation_space", None))

    @property
    def actions(self) -> Choices | Box:
        return self._run_check(actions_of, getattr(self._first, "action_space", None))

    def start_episodes(self, copies: int, rng: np.random.Generator) -> Copies:
        each = tuple(self._copy(self._first) for _ in range(copies))
        return Copies(each, np.stack([self._reset(one, rng) for one in each]), np.zeros(copies, np.int64))

    def observe_state(self, state: Copies) -> NDArray[np.float32]:
        return state.seen

    def take_step(self, state: Copies, actions: NDArray[Any]) -> Step:
        """One step of a copy of each.

        Raises:
            ConfigError: one cannot be copied, fails, or answers something else than gymnasium's interface has.
        """
        each = tuple(self._copy(one) for one in state.each)
        whole, shape, steps = isinstance(self.actions, Choices), self.shape, state.steps + 1
        answers = []
        for one, action, at in zip(each, actions, steps.tolist(), strict=True):
            answer = self.call_external(
                one.step, int(action) if whole else action.astype(np.float32), at=f"step {at}: "
            )
            answers.append(self._run_check(step_of, answer, shape, at=f"step {at}: "))
        seen, rewards, terminated, truncated = (np.array(part) for part in zip(*answers, strict=True))
        return Step(Copies(each, seen, steps), rewards, terminated, truncated | (steps >= self.limit))

    def restart_episodes(self, state: Copies, over: NDArray[np.bool_], rng: np.random.Generator) -> Copies:
        each, seen = list(state.each), state.seen.copy()
        for number in np.flatnonzero(over):
            each[number] = self._copy(each[number])
            seen[number] = self._reset(each[number], rng)
        return Copies(tuple(each), seen, np.where(over, 0, state.steps))

    def _reset(self, one: Any, rng: np.random.Generator) -> NDArray[np.float32]:
        answer = self.call_external(lambda: one.reset(seed=int(rng.integers(2**31))), at="reset(seed=...): ")
        return self._run_check(start_of, answer, self.shape, at="reset(seed=...): ")

    def _copy(self, one: Any) -> Any:
        remedy = ". Expected an environment that it copies whole: keep locks, files and generators of `yield` out of it"
        return self.call_external(copy.deepcopy, one, at="copy.deepcopy: ", remedy=remedy)

    def call_external(self, call: Callable[..., Any], *arguments: Any, at: str = "", remedy: str = "") -> Any:
        """What a call of the user's or gymnasium's code returns; its failure is one line.

        Args:
            at: where this is, with a colon.
            remedy: the remedy if it fails.
        """
        try:
            return call(*arguments)
        except FAILURES as error:
            raise ConfigError(f"{self}: {at}failed: {type(error).__name__}: {oneline(error)}{remedy}.") from error

    def _run_check(self, check: Callable[..., Found], *given: Any, at: str = "") -> Found:
        try:
            return check(*given)
        except UnexpectedAnswer as error:
            raise ConfigError(f"{self}: {at}{error}.") from None
