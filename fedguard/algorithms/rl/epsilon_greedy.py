"""Epsilon-greedy: the best of a few choices, and now and then any (Sutton and Barto, 2018, section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from fedguard.contracts import Policy


@dataclass(frozen=True)
class EpsilonGreedy(Policy):
    """By chance epsilon any of n choices, and else the best: $pi(a) = epsilon / n + (1 - epsilon) [a = best]$.

    Attributes:
        outputs: n: a number for each choice; the largest marks the best choice.
        epsilon: float32, of a shape that broadcasts to the shape of the actions.
    """

    outputs: int
    epsilon: Tensor
    numbers: int = 1

    @property
    def choices(self) -> int:
        return self.outputs

    def draws(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.random(shape)

    def draw_actions(self, outputs: Tensor, draws: Tensor) -> Tensor:
        # One draw decides both: given draw < epsilon, draw / epsilon is uniform again; the upper clamp is for rounding to 1
        tried = (draws / self.epsilon.clamp(min=1e-12) * self.outputs).long().clamp(max=self.outputs - 1)
        return torch.where(draws < self.epsilon, tried, self.best(outputs))

    def best(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)

    def encode_actions(self, actions: Tensor) -> Tensor:
        return one_hot(actions, self.outputs).float()

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.generic]:
        return rng.integers(self.outputs, size=shape)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        greedy = (actions == self.best(outputs)).float()
        return (self.epsilon / self.outputs + (1 - self.epsilon) * greedy).log()

    def entropy(self, outputs: Tensor) -> Tensor:
        chances = torch.stack([self.epsilon / self.outputs] * self.outputs, -1)
        chances[..., 0] += 1 - self.epsilon
        found: Tensor = -torch.special.xlogy(chances, chances).sum(-1).expand(outputs.shape[:-1])
        return found
