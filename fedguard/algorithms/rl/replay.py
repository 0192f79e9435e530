"""Prioritized experience replay: what surprised most is learned again most often (Schaul et al., ICLR 2016)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts import Rollout

Reals = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Items:
    """N items of a kind: each field is a tensor ``[N, ...]`` with a row for each item."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def __getitem__(self, places: Tensor) -> Self:
        return type(self)(*(getattr(self, field.name)[places] for field in fields(self)))


Kept = TypeVar("Kept", bound=Items)


@dataclass(frozen=True)
class Transitions(Items):
    """N transitions: what followed from an action.

    Attributes:
        seen: float32 ``[N, *shape]``.
        actions: int64 ``[N]``.
        returns: float32 ``[N]``: discounted rewards of up to n steps.
        discounts: float32 ``[N]``: the factor of the value of ``after``; 0 if the episode terminated.
        after: float32 ``[N, *shape]``: what was observed after these steps.
    """

    seen: Tensor
    actions: Tensor
    returns: Tensor
    discounts: Tensor
    after: Tensor


def transitions(rollout: Rollout, n: int, gamma: float, scale: float = 1.0) -> Transitions:
    """The ``T B`` transitions of a rollout of T steps of B copies, each over n steps, or as far as episode and rollout go.

    Args:
        scale: what rewards are multiplied by.

    Source: Horgan et al., ICLR 2018, section 3.1.
    """
    returns, discounts, last = look_ahead(scale * rollout.rewards, rollout.terminated, rollout.truncated, n, gamma)
    after = rollout.after[last, torch.arange(last.shape[1])]
    parts = rollout.seen, rollout.actions, returns, discounts, after
    return Transitions(*(part.flatten(0, 1) for part in parts))


def look_ahead(
    rewards: Tensor, terminated: Tensor, truncated: Tensor, n: int, gamma: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""The n-step return of each step, or as far as its episode and the T steps go; each ``[T, B]``.

    $R_t = sum_{k<m} gamma^k r_{t+k}$ and the discount $gamma^m$, where m is n at most; 0 if the last of these steps ended the
    episode. If the episode was truncated there, the state after it still has a value.

    Args:
        rewards: float32 ``[T, B]``.
        terminated, truncated: bool ``[T, B]``.
        gamma: the discount of a step.

    Returns:
        R, the discounts, and the number of the last step that is counted.

    Source: Pardo et al., Time Limits in Reinforcement Learning, ICML 2018, for truncation.
    """
    over = terminated | truncated
    steps, copies = rewards.shape
    returns, last = rewards.clone(), torch.arange(steps)[:, None].repeat(1, copies)
    for k in range(1, min(n, steps)):
        # A window grows by its step k only if it has the step before, and that one ended no episode
        goes_on = (last[:-k] == torch.arange(k - 1, steps - 1)[:, None]) & ~over[k - 1 : -1]
        returns[:-k] += torch.where(goes_on, gamma**k * rewards[k:], 0.0)
        last[:-k] += goes_on
    discounts = gamma ** (last - torch.arange(steps)[:, None] + 1).float() * ~terminated.gather(0, last)
    return returns, discounts, last


class ReplayBuffer(Generic[Kept]):
    """Transitions or sequences with priorities, up to a capacity; new items replace the oldest.

    Args:
        capacity: most items.
        quota: most items of one actor; None for no limit. Beyond it, an actor's new items replace its own oldest.
    """

    def __init__(self, capacity: int, quota: int | None = None) -> None:
        self.capacity, self.quota = capacity, quota
        self._kept: Kept | None = None
        self.priorities: Reals = np.zeros(capacity)
        self.owners: Places = np.full(capacity, -1)
        self._ages: Places = np.zeros(capacity, np.int64)
        self._clock = self._there = 0

    def __len__(self) -> int:
        return self._there

    def add(self, actor: int, new: Kept, priorities: Reals) -> None:
        """Keep these, in this order."""
        most = min(self.capacity, self.quota or self.capacity)
        # Of more than fit, the newest are kept, as if they had been added one by one
        some = slice(max(len(new) - most, 0), None)
        new, priorities = new[torch.arange(len(new))[some]], priorities[some]
        places = self._room(actor, len(new))
        if self._kept is None:
            parts = (getattr(new, field.name) for field in fields(new))
            self._kept = type(new)(*(part.new_zeros(self.capacity, *part.shape[1:]) for part in parts))
        for field in fields(new):
            getattr(self._kept, field.name)[torch.from_numpy(places)] = getattr(new, field.name)
        self._there += int((self.owners[places] < 0).sum())
        self.priorities[places], self.owners[places] = _finite(priorities), actor
        self._ages[places] = self._clock + np.arange(len(new))
        self._clock += len(new)

    def _room(self, actor: int, n: int) -> Places:
        """n places for an actor's new items: its own oldest beyond the quota, then empty places, then the oldest of all."""
        if self.quota is None:  # a ring buffer: the oldest come next
            return (self._clock + np.arange(n)) % self.capacity
        own = np.flatnonzero(self.owners == actor)
        over = max(len(own) + n - self.quota, 0)
        first = own[np.argsort(self._ages[own])][:over]
        # Empty places count as older than everything, and the actor's own that are taken already as the newest
        ages = np.where(self.owners < 0, np.arange(self.capacity) - self.capacity, self._ages)
        ages[first] = self._clock
        rest = np.argpartition(ages, n - over - 1)[: n - over] if n > over else first[:0]
        rest = rest[np.argsort(ages[rest])]
        return np.concatenate([first, rest])

    def sample_indices(self, size: int, alpha: float, rng: np.random.Generator) -> tuple[Places, Reals]:
        """``size`` places, and the probabilities with which they were drawn."""
        chances = probabilities(self.priorities, self.owners >= 0, alpha)
        places = stratify_draws(chances, rng.random(size))
        return places, chances[places]

    def at(self, places: Places) -> Kept:
        assert self._kept is not None
        return self._kept[torch.from_numpy(places)]

    def judge(self, places: Places, priorities: Reals) -> None:
        """Replace the priorities of the items at these places."""
        self.priorities[places] = _finite(priorities)


def _finite(priorities: Reals) -> Reals:
    """Priorities with 0 for NaN, from which nothing can be learned, and the largest float for infinity."""
    return np.nan_to_num(priorities, nan=0.0)


def probabilities(priorities: Reals, there: NDArray[np.bool_], alpha: float, least: float = 1e-6) -> Reals:
    r"""$P(i) = p_i^alpha / sum_k p_k^alpha$ for places in use, with ``least`` added to $p_i$; 0 for empty places.

    Source: Schaul et al., ICLR 2016, equation 1.
    """
    largest = priorities.max(initial=0.0, where=there) + least  # no power of a claimed priority overflows
    powers = np.where(there, ((priorities + least) / largest) ** alpha, 0.0)
    return np.asarray(powers / powers.sum())


def stratify_draws(chances: Reals, draws: Reals) -> Places:
    """Places by their chances: the b-th of B draws in [0, 1) takes the place at $(b + draw) / B$ of all chances in a row.

    Source: Schaul et al., ICLR 2016, appendix B.2.1.
    """
    # The sum is not exactly 1 after rounding, so draws are scaled by it; "right" skips places without a chance, and the
    # minimum catches a draw that rounding moved beyond the last place with one
    ends = np.cumsum(chances)
    found = np.searchsorted(ends, (np.arange(len(draws)) + draws) / len(draws) * ends[-1], side="right")
    return np.asarray(np.minimum(found, np.flatnonzero(chances)[-1]))


def importance(chances: Reals, n: int, beta: float) -> Reals:
    r"""$w_i = (n P(i))^{-beta} / max_j w_j$ over the items drawn out of n. Source: Schaul et al., ICLR 2016, section 3.4."""
    weights = (n * chances) ** -beta
    return np.asarray(weights / weights.max())
