"""Tasks whose model acts: laws of actions, rollouts, and what an algorithm of actors asks of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedguard.contracts.tasks import Evaluation, Task


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
        memory: float32 ``[T, B, M]``: what a network with a memory of M numbers had in it before each step; else None.
    """

    seen: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    after: Tensor
    behaviour: Tensor
    memory: Tensor | None = None

    @classmethod
    def unflatten_parts(cls, flat: Tensor, steps: int, copies: int, shape: tuple[int, ...], policy: Policy) -> Rollout:
        """A rollout whose `parts` were laid out one after the other, as float32; of a network without memory."""
        each, seen = (steps, copies), (steps, copies, *shape)
        of_choices = policy.choices > 0
        actions = each if of_choices else (*each, policy.numbers)
        shapes = {"seen": seen, "actions": actions, "after": seen}
        sizes = [torch.Size(shapes.get(field.name, each)) for field in fields(cls) if field.name != "memory"]
        found = [
            part.view(size) for part, size in zip(torch.split(flat, [one.numel() for one in sizes]), sizes, strict=True)
        ]
        made = cls(*found)
        return replace(
            made,
            actions=made.actions.long() if of_choices else made.actions,
            terminated=made.terminated.bool(),
            truncated=made.truncated.bool(),
        )

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All that there is of it, in the order of the attributes."""
        return tuple(part for field in fields(self) if (part := getattr(self, field.name)) is not None)


class RecurrentNetwork(nn.Module):
    """A network with a memory, float32 ``[B, M]``: 0 before the first step of an episode, and of what came before it then.

    Attributes:
        memory: M.
    """

    memory: int

    @abstractmethod
    def forward(self, x: Tensor, memory: Tensor | None = None, starts: Tensor | None = None) -> Any:
        """Outputs ``[B, outputs]`` of observations ``[B, *shape]`` at the start of an episode, where that is all there is.

        With a memory, the outputs and the memory ``[B, M]`` after this step. With ``starts``, bool ``[T, B]``, x are T steps,
        ``[T, B, *shape]``, and so are the outputs and memories: where an episode starts with a step, memory is 0 before it.
        """

    def remember_actions(self, memory: Tensor, heard: Tensor) -> Tensor:
        """The memory ``[..., M]`` once it has heard what was done (`Policy.encode_actions`); as it was, of one that does not
        listen."""
        return memory


class WorldModel(RecurrentNetwork):
    """A network that foresees what follows from actions, in states $s = (h, z)$, float32 ``[..., S]``.

    h, ``[..., H]``, follows from what was before. z, ``[..., Z]``, is normal by each entry: the prior knows h alone, and the
    posterior what is observed as well. What it remembers are a state and what was heard of the action taken in it.

    Attributes:
        fixed: H.
        chance: Z.
        actor: outputs of the policy, ``[..., outputs]``, of a state.
        critic: the value, ``[..., 1]``, of a state. All other parameters are the world's.
    """

    fixed: int
    chance: int
    actor: nn.Module
    critic: nn.Module

    @abstractmethod
    def advance_state(self, state: Tensor, heard: Tensor) -> Tensor:
        """h after an action in a state."""

    @abstractmethod
    def prior(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and spread of z."""

    @abstractmethod
    def posterior(self, h: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
        """The same, given also what was read."""

    @abstractmethod
    def reads(self, x: Tensor) -> Tensor:
        """What it makes of observations ``[..., *shape]``, ``[..., X]``."""

    @abstractmethod
    def predict_observation(self, state: Tensor) -> Tensor:
        """``[..., X]``: what it would read in a state."""

    @abstractmethod
    def predict_reward(self, state: Tensor) -> Tensor:
        """``[...]``: the reward of the step that led to a state."""

    @abstractmethod
    def lasts(self, state: Tensor) -> Tensor:
        """``[...]``: the logit of the episode's not having ended with that step."""


class Policy(ABC):
    """A law of actions. Of the outputs, float32 ``[..., outputs]``, everything else follows; gradients flow to them.

    Attributes:
        outputs: how many numbers it takes.
        numbers: how many an action is.
    """

    outputs: int
    numbers: int

    @property
    def choices(self) -> int:
        """How many actions there are; 0 where they are a range."""
        return 0

    @abstractmethod
    def draws(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        """Randomness for actions of a shape, ``[*shape]`` or ``[*shape, n]``: what `draw_actions` makes actions of."""

    @abstractmethod
    def draw_actions(self, outputs: Tensor, draws: Tensor) -> Tensor:
        """Actions by chance: int64 ``[...]``, or float32 ``[..., n]``."""

    @abstractmethod
    def best(self, outputs: Tensor) -> Tensor:
        """The likeliest actions."""

    @abstractmethod
    def encode_actions(self, actions: Tensor) -> Tensor:
        """float32 ``[..., outputs]``: what a network hears of actions, the statistics that are sufficient for the law."""

    @abstractmethod
    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.generic]:
        """Actions of one who does not look: all alike likely."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """float32 ``[...]``: the logarithm of the probability, or its density."""

    @abstractmethod
    def entropy(self, outputs: Tensor) -> Tensor:
        """float32 ``[...]``, in nats."""


#: (outputs of a network, ``[B, *shape]`` -> ``[B, outputs]``, with gradients; observations ``[B, *shape]``) -> others.
Shown = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]


class ActingTask(Task):
    """A task of actors, each with environments of its own.

    Attributes:
        policy: what an actor does, given the outputs of the network.
    """

    policy: Policy

    @property
    @abstractmethod
    def memory(self) -> int:
        """How many numbers the network remembers from one step to the next; 0 for none."""

    @abstractmethod
    def lie(self, what: str, client: int) -> Callable[..., Any] | None:
        """What an actor makes of the truth, by a method of `PoisonAttack`; None of an honest one. See `Task.with_lies`."""

    @abstractmethod
    def with_copies(self, copies: int) -> ActingTask:
        """The same where each actor has so many environments."""

    def self_report(self, what: str, client: int, truth: Tensor) -> Tensor:
        """What an actor says where ``truth`` is so."""
        lie = self.lie(what, client)
        return truth if lie is None else lie(truth)

    @abstractmethod
    def start_actor(self, rng: np.random.Generator) -> Any:
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
    def evaluate(
        self, model: Tensor, chosen: Callable[[Tensor], Tensor] | None = None, shown: Shown | None = None
    ) -> Evaluation:
        """Play test episodes.

        Args:
            chosen: the actions for what a network remembers once it has observed, ``[B, M]``; its likeliest ones if None.
            shown: what the network is shown in place of what is observed, at each step; that itself if None.
        """

    @abstractmethod
    def outputs(self, model: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Policy's outputs ``[B, outputs]`` and values ``[B]`` of observations ``[B, *shape]``; gradients flow to both."""

    @abstractmethod
    def outputs_from_memory(self, model: Tensor, seen: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same of a network with the memory ``[B, M]``, and its memory after this step; gradients flow to all."""

    @abstractmethod
    def unroll_steps(
        self, model: Tensor, seen: Tensor, starts: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same of T steps, each ``[T, B, ...]``, from the memory ``[B, M]`` before the first of them.

        Args:
            seen: ``[T, B, *shape]``.
            starts: bool ``[T, B]``: whether an episode starts with a step, so that nothing is remembered before it.
        """

    @abstractmethod
    def remember_actions(self, memory: Tensor, actions: Tensor) -> Tensor:
        """The memory ``[B, M]`` of a network that has heard what was done, ``[B]`` or ``[B, n]``."""

    @abstractmethod
    def within(self, model: Tensor, run: Callable[..., Any], *inputs: Any) -> Any:
        """``run(module, *inputs)`` with the parameters ``model`` in the module; gradients flow to them."""
