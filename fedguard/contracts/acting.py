"""Tasks whose model acts: laws of actions, rollouts, and what an algorithm of actors asks of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts.tasks import Task


@dataclass(frozen=True)
class Rollout:
    """T steps of B copies; of several actors at once with one more axis in front.

    Attributes:
        seen: float32 ``[T, B, *shape]``: what was observed before each step.
        actions: int64 ``[T, B]``, or float32 ``[T, B, n]``.
        rewards: float32 ``[T, B]``.
        terminated, truncated: bool ``[T, B]``: whether the episode ended with the step, or was cut off after it.
        after: float32 ``[T, B, *shape]``: what was observed after each step, before any new start.
        behaviour: float32 ``[T, B]``: the logarithm of the probability with which the actor says that it took the action.
    """

    seen: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    after: Tensor
    behaviour: Tensor

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All of it, in the order of the attributes."""
        return tuple(getattr(self, field.name) for field in fields(self))


class Policy(ABC):
    """A law of actions. Of the outputs, float32 ``[..., outputs]``, everything else follows; gradients flow to them.

    Attributes:
        outputs: how many numbers it takes.
        numbers: how many an action is.
    """

    outputs: int
    numbers: int

    @abstractmethod
    def draws(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        """Randomness for actions of a shape, ``[*shape]`` or ``[*shape, n]``: what `drawn` makes actions of."""

    @abstractmethod
    def drawn(self, outputs: Tensor, draws: Tensor) -> Tensor:
        """Actions by chance: int64 ``[...]``, or float32 ``[..., n]``."""

    @abstractmethod
    def best(self, outputs: Tensor) -> Tensor:
        """The likeliest actions."""

    @abstractmethod
    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.generic]:
        """Actions of one who does not look: all alike likely."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """float32 ``[...]``: the logarithm of the probability, or its density."""

    @abstractmethod
    def entropy(self, outputs: Tensor) -> Tensor:
        """float32 ``[...]``, in nats."""


class Acting(Task):
    """A task of actors, each with environments of its own.

    Attributes:
        policy: what an actor does, given the outputs of the network.
    """

    policy: Policy

    @abstractmethod
    def said(self, what: str, client: int, truth: Tensor) -> Tensor:
        """What an actor says where ``truth`` is so; ``what`` is a method of `PoisonAttack`, see `Task.with_lies`."""

    @abstractmethod
    def started(self, rng: np.random.Generator) -> Any:
        """The state of one actor's environments before its first step."""

    @abstractmethod
    def rollouts(
        self,
        models: Tensor,
        clients: Sequence[int],
        states: Sequence[Any],
        steps: int,
        rngs: Sequence[np.random.Generator],
        law: Policy | None = None,
    ) -> tuple[list[Rollout], list[Any]]:
        """So many steps of each of these actors, with what a malicious one makes of its rewards; and the states after them.

        An actor draws from its own stream alone, so what it does depends on its model, its state and that.

        Args:
            models: float32 ``[n, d]``: by which each acts.
            states: of their environments, which are left as they are.
            law: by which they act on the network's outputs, ``[n, B, outputs]``; that of the task if None.
        """

    @abstractmethod
    def outputs(self, model: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Policy's outputs ``[B, outputs]`` and values ``[B]`` of observations ``[B, *shape]``; gradients flow to both."""
