"""Multi-layer perceptron."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from fedguard.contracts import Model, PositiveInt


@dataclass(frozen=True, kw_only=True)
class MLP(Model):
    """Dense layers with ReLU between them.

    Args:
        hidden: widths of the hidden layers; the FedAvg paper's 2NN is [200, 200].
    """

    name = "mlp"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"

    hidden: tuple[PositiveInt, ...] = (200,)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for width_in, width_out in pairwise((prod(shape), *self.hidden)):
            layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear((prod(shape), *self.hidden)[-1], classes))
