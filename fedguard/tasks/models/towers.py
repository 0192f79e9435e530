"""Two perceptrons side by side, for actors: one for the policy and one for the value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from fedguard.contracts import Model, PositiveInt


@dataclass(frozen=True, kw_only=True)
class Towers(Model):
    """Policy and value by perceptrons of their own, with tanh between the layers: the last output is the value's.

    The critic's large errors therefore do not drown what the actor learns. Weights start orthogonal, scaled by $2^{1/2}$, but
    by .01 in the last layer of the policy and by 1 in the last layer of the value; biases start at 0.

    Args:
        hidden: widths of the hidden layers of each.
    """

    name = "towers"
    source = "Andrychowicz et al., What Matters for On-Policy Deep Actor-Critic Methods, ICLR 2021"

    hidden: tuple[PositiveInt, ...] = (64, 64)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return _Towers(prod(shape), self.hidden, classes)


class _Towers(nn.Module):
    def __init__(self, inputs: int, hidden: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.policy = _tower((inputs, *hidden, outputs - 1), 0.01)
        self.value = _tower((inputs, *hidden, 1), 1.0)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return torch.cat([self.policy(flat), self.value(flat)], dim=-1)


def _tower(widths: tuple[int, ...], last: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(widths), 2):
        layer = nn.Linear(before, after)
        nn.init.orthogonal_(layer.weight, last if number == len(widths) else math.sqrt(2))
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])
