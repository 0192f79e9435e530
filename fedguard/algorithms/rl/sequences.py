"""Overlapping sequences of steps, with the memory of the network before each (Kapturowski et al., ICLR 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedguard.algorithms.rl.replay import Items
from fedguard.contracts import Rollout


@dataclass(frozen=True)
class Sequences(Items):
    """N sequences of L steps, which continue into the next episode when one is over.

    Attributes:
        seen: float32 ``[N, L, *shape]``: what was observed before each step.
        actions: int64 ``[N, L]``.
        rewards: float32 ``[N, L]``.
        terminated, truncated: bool ``[N, L]``: whether the episode ended with the step, or was cut off after it.
        after: float32 ``[N, L, *shape]``: what was observed after each step, before any new start.
        memory: float32 ``[N, M]``: the memory of the actor's network before the first step.
    """

    seen: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    after: Tensor
    memory: Tensor

    def in_time(self) -> Sequences:
        """The same with the dimension of steps first, ``[L, N, ...]``; the memory as it is."""
        parts = (self.seen, self.actions, self.rewards, self.terminated, self.truncated, self.after)
        return Sequences(*[part.transpose(0, 1) for part in parts] + [self.memory])

    def starts(self) -> Tensor:
        """bool ``[L, N]``, for steps first: whether a step begins an episode, as far as the sequence shows it."""
        over = self.terminated | self.truncated
        return torch.cat([torch.zeros_like(over[:1]), over[:-1]])


def nothing_yet(rollout: Rollout, steps: int) -> Rollout:
    """``steps`` placeholders before an actor's first step: a truncated episode of zeros."""
    parts = [part.new_zeros(steps, *part.shape[1:]) for part in rollout.parts]
    empty = Rollout(*parts)
    if steps:
        empty.truncated[-1] = True
    return empty


def join_rollouts(past: Rollout, rollout: Rollout) -> Rollout:
    """A rollout with the steps before it."""
    return Rollout(*(torch.cat(both) for both in zip(past.parts, rollout.parts, strict=True)))


def last_steps(rollout: Rollout, steps: int) -> Rollout:
    """The last ``steps`` steps of a rollout."""
    return Rollout(*(part[len(part) - steps :] for part in rollout.parts))


def sequences(window: Rollout, scale: float = 1.0) -> Sequences:
    """One sequence for each copy, with all steps of a window.

    Args:
        scale: what rewards are multiplied by.
    """
    steps, copies = window.rewards.shape
    memory = torch.zeros(steps, copies, 0) if window.memory is None else window.memory
    scaled = replace(window, rewards=scale * window.rewards)
    parts = (scaled.seen, scaled.actions, scaled.rewards, scaled.terminated, scaled.truncated, scaled.after)
    return Sequences(*[part.transpose(0, 1).contiguous() for part in parts] + [memory[0]])
