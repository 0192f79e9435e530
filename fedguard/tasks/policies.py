"""Policies: the distribution of an actor's actions, given the outputs of its network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import log_softmax, one_hot, softplus

from fedguard.contracts import Box, Choices, Policy


@dataclass(frozen=True)
class CategoricalPolicy(Policy):
    """One of n choices: $pi(a) = exp(o_a) / sum_b exp(o_b)$."""

    outputs: int
    numbers: int = 1

    @property
    def choices(self) -> int:
        return self.outputs

    def draws(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.random(shape)

    def draw_actions(self, outputs: Tensor, draws: Tensor) -> Tensor:
        # The last sum is left out, as rounding may leave it below a draw near 1
        below = log_softmax(outputs, -1).exp().cumsum(-1)[..., :-1] < draws[..., None]
        return below.sum(-1)

    def best(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)

    def encode_actions(self, actions: Tensor) -> Tensor:
        """One-hot: 1 for the action, 0 for the others."""
        return one_hot(actions, self.outputs).float()

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.generic]:
        return rng.integers(self.outputs, size=shape)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return log_softmax(outputs, -1).gather(-1, actions[..., None]).squeeze(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        logs = log_softmax(outputs, -1)
        return -(logs.exp() * logs).sum(-1)


@dataclass(frozen=True)
class GaussianPolicy(Policy):
    """A vector of independent entries: $a = m + h (o_1 + s e)$ with e normal and $s = log(1 + exp(o_2)) + 10^{-3}$.

    m and h are the middle and the half width of the bounds, to which the environment clips actions.
    """

    n: int
    low: float
    high: float

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return 2 * self.n

    @property
    def numbers(self) -> int:  # type: ignore[override]
        return self.n

    def _law(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = outputs.chunk(2, -1)
        half = (self.high - self.low) / 2
        return (self.low + self.high) / 2 + half * mean, half * (softplus(spread) + 1e-3)

    def draws(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.standard_normal((*shape, self.n))

    def draw_actions(self, outputs: Tensor, draws: Tensor) -> Tensor:
        mean, spread = self._law(outputs)
        return (mean + spread * draws).float()

    def best(self, outputs: Tensor) -> Tensor:
        return self._law(outputs)[0]

    def encode_actions(self, actions: Tensor) -> Tensor:
        """b and $b^2$ with $b = (a - m) / h$, clipped to the bounds."""
        inside = ((actions - (self.low + self.high) / 2) / ((self.high - self.low) / 2)).clamp(-1, 1)
        return torch.cat([inside, inside.square()], -1)

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.generic]:
        return rng.uniform(self.low, self.high, (*shape, self.n))

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        mean, spread = self._law(outputs)
        return (-0.5 * ((actions - mean) / spread) ** 2 - spread.log() - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        return (self._law(outputs)[1].log() + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


def policy_of(actions: Choices | Box) -> Policy:
    """The policy of actors in an action space."""
    return (
        CategoricalPolicy(actions.n)
        if isinstance(actions, Choices)
        else GaussianPolicy(actions.n, actions.low, actions.high)
    )


def cut(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Split an actor-critic's outputs ``[..., outputs + 1]`` into the policy's outputs and the value ``[...]``."""
    return outputs[..., :-1], outputs[..., -1]
