"""Rollouts of several actors, and their returns."""

from __future__ import annotations

import torch
from torch import Tensor

from fedguard.contracts import Rollout


def stack_rollouts(rollouts: list[Rollout]) -> Rollout:
    """The rollouts of several actors as one, with a leading dimension of actors."""
    return Rollout(*map(torch.stack, zip(*(one.parts for one in rollouts), strict=True)))


def n_step_returns(rewards: Tensor, after: Tensor, terminated: Tensor, truncated: Tensor, gamma: float) -> Tensor:
    r"""The return of each step over the rest of the rollout, bootstrapped by the critic.

    $R_t = r_t + gamma R_{t+1}$; the second term is $gamma V(s'_t)$ if the rollout ends or the episode was truncated, and 0 if
    the episode terminated: after a truncation the state still has a value.

    Args:
        rewards: ``[T, ...]``.
        after: $V(s'_t)$ of the state after each step, before any new start, ``[T, ...]``.
        terminated, truncated: bool ``[T, ...]``.
        gamma: the discount.

    Source: Mnih et al., ICML 2016, Algorithm S3; Pardo et al., Time Limits in Reinforcement Learning, ICML 2018.
    """
    follows, found = after[-1], []
    for t in range(len(rewards) - 1, -1, -1):
        # Nothing is carried over an end of either kind: the next step in the rollout belongs to another episode
        follows = torch.where(truncated[t], after[t], follows)
        follows = rewards[t] + gamma * torch.where(terminated[t], torch.zeros_like(follows), follows)
        found.append(follows)
    return torch.stack(found[::-1])
