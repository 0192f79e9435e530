"""Tasks whose model acts: policies, rollouts, and what an algorithm of actors requires of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedguard.contracts.lying import Channel, Reported
from fedguard.contracts.tasks import Evaluation, Task


@dataclass(frozen=True)
class Rollout:
    """T steps of B environments; for several actors at once, with one more axis in front.

    Attributes:
        seen: float32 ``[T, B, *shape]``: the observation before each step.
        actions: int64 ``[T, B]``, or float32 ``[T, B, n]``.
        rewards: float32 ``[T, B]``.
        terminated, truncated: bool ``[T, B]``: whether the episode ended with the step, or was cut off after it.
        after: float32 ``[T, B, *shape]``: the observation after each step, before any new start.
        behavior: float32 ``[T, B]``: log-probability of the action as the actor reports it.
        memory: float32 ``[T, B, M]``: the network's memory of M numbers before each step; None for a network without memory.
    """

    seen: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    after: Tensor
    behavior: Tensor
    memory: Tensor | None = None

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All its tensors, in the order of the attributes."""
        return tuple(part for field in fields(self) if (part := getattr(self, field.name)) is not None)


def unflatten_rollout(flat: Tensor, steps: int, copies: int, shape: tuple[int, ...], policy: Policy) -> Rollout:
    """A rollout from its `Rollout.parts`, laid out one after the other as float32; for networks without memory."""
    each, seen = (steps, copies), (steps, copies, *shape)
    of_choices = policy.choices > 0
    actions = each if of_choices else (*each, policy.numbers)
    shapes = {"seen": seen, "actions": actions, "after": seen}
    sizes = [torch.Size(shapes.get(field.name, each)) for field in fields(Rollout) if field.name != "memory"]
    found = [
        part.view(size) for part, size in zip(torch.split(flat, [one.numel() for one in sizes]), sizes, strict=True)
    ]
    made = Rollout(*found)
    return replace(
        made,
        actions=made.actions.long() if of_choices else made.actions,
        terminated=made.terminated.bool(),
        truncated=made.truncated.bool(),
    )


class RecurrentNetwork(nn.Module):
    """A network with a memory, float32 ``[B, M]``, which is 0 before the first step of an episode.

    Attributes:
        memory: M.
    """

    memory: int

    @abstractmethod
    def forward(self, x: Tensor, memory: Tensor | None = None, starts: Tensor | None = None) -> Any:
        """Outputs ``[B, outputs]`` for observations ``[B, *shape]`` at the start of an episode.

        With a memory, returns the outputs and the memory ``[B, M]`` after this step. With ``starts``, bool ``[T, B]``, x holds
        T steps, ``[T, B, *shape]``, and so do the outputs and memories. The memory is 0 before each step that starts an
        episode.
        """

    def remember_actions(self, memory: Tensor, heard: Tensor) -> Tensor:
        """The memory ``[..., M]`` after the actions in ``heard`` (`Policy.encode_actions`); unchanged by default."""
        return memory


class WorldModel(RecurrentNetwork):
    """A network that predicts the consequences of actions, in states $s = (h, z)$, float32 ``[..., S]``.

    h, ``[..., H]``, is deterministic given the past. z, ``[..., Z]``, is normal with independent entries: the prior depends on
    h alone, and the posterior also on the observation. The memory is a state and the encoding of the action taken in it.

    Attributes:
        fixed: H.
        chance: Z.
        actor: outputs of the policy, ``[..., outputs]``, for a state.
        critic: the value, ``[..., 1]``, of a state. All other parameters belong to the world model.
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
        """Mean and standard deviation of z given h."""

    @abstractmethod
    def posterior(self, h: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of z given h and the encoded observation."""

    @abstractmethod
    def reads(self, x: Tensor) -> Tensor:
        """Encode observations ``[..., *shape]`` as ``[..., X]``."""

    @abstractmethod
    def predict_observation(self, state: Tensor) -> Tensor:
        """``[..., X]``: the encoded observation that it expects in a state."""

    @abstractmethod
    def predict_reward(self, state: Tensor) -> Tensor:
        """``[...]``: the reward of the step that led to a state."""

    @abstractmethod
    def lasts(self, state: Tensor) -> Tensor:
        """``[...]``: the logit of the probability that the episode did not end with the step that led to a state."""


class Policy(ABC):
    """A distribution over actions, determined by outputs, float32 ``[..., outputs]``, to which gradients flow.

    Attributes:
        outputs: number of outputs of the network that it takes.
        numbers: how many numbers an action is.
    """

    outputs: int
    numbers: int

    @property
    def choices(self) -> int:
        """Number of actions; 0 if actions are continuous."""
        return 0

    @abstractmethod
    def draws(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        """Randomness for actions of a shape, ``[*shape]`` or ``[*shape, n]``, from which `draw_actions` makes actions."""

    @abstractmethod
    def draw_actions(self, outputs: Tensor, draws: Tensor) -> Tensor:
        """Random actions: int64 ``[...]``, or float32 ``[..., n]``."""

    @abstractmethod
    def best(self, outputs: Tensor) -> Tensor:
        """The most likely actions."""

    @abstractmethod
    def encode_actions(self, actions: Tensor) -> Tensor:
        """float32 ``[..., outputs]``: the encoding of actions for a network: sufficient statistics of the distribution."""

    @abstractmethod
    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.generic]:
        """Uniformly distributed actions, independent of any observation."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """float32 ``[...]``: the log-probability, or log-density."""

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
        """Number of values that the network remembers from one step to the next; 0 for none."""

    @abstractmethod
    def report(self, channel: Channel[Reported, ...], client: int, truth: Reported, *context: Any) -> Reported:
        """What an actor reports on a channel: the truth, unless it lies there (see `Task.with_liars`)."""

    @abstractmethod
    def with_copies(self, copies: int) -> ActingTask:
        """The same task with this number of environments per actor."""

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
        """Rollouts of ``steps`` steps of these actors, with the rewards as malicious actors falsify them; and the new states.

        An actor draws from its own stream only. Its actions depend on nothing but its model, its state and this stream.

        Args:
            models: float32 ``[n, d]``: the model of each actor.
            states: states of their environments, which are not changed.
            law: policy that acts on the network's outputs, ``[n, B, outputs]``; the task's own if None.
        """

    @abstractmethod
    def evaluate(
        self,
        model: Tensor,
        statistics: Tensor | None = None,
        *,
        chosen: Callable[[Tensor], Tensor] | None = None,
        shown: Shown | None = None,
    ) -> Evaluation:
        """Play test episodes.

        Args:
            chosen: the actions for the network's memory after its observation, ``[B, M]``; the most likely ones if None.
            shown: what the network is shown instead of the observation at each step; the observation itself if None.
        """

    @abstractmethod
    def outputs(self, model: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Policy's outputs ``[B, outputs]`` and values ``[B]`` of observations ``[B, *shape]``; gradients flow to both."""

    @abstractmethod
    def outputs_from_memory(self, model: Tensor, seen: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same for a network with the memory ``[B, M]``, and its memory after this step; gradients flow to all."""

    @abstractmethod
    def unroll_steps(
        self, model: Tensor, seen: Tensor, starts: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same for T steps, each ``[T, B, ...]``, from the memory ``[B, M]`` before the first of them.

        Args:
            seen: ``[T, B, *shape]``.
            starts: bool ``[T, B]``: whether an episode starts with a step, so that the memory before it is 0.
        """

    @abstractmethod
    def remember_actions(self, memory: Tensor, actions: Tensor) -> Tensor:
        """The memory ``[B, M]`` of a network after it received the actions, ``[B]`` or ``[B, n]``."""

    @abstractmethod
    def within(self, model: Tensor, run: Callable[..., Any], *inputs: Any) -> Any:
        """``run(module, *inputs)`` with the parameters ``model`` in the module; gradients flow to them."""
