"""Trap weights (Boenisch et al., EuroS&P 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fedguard.attacks.inference.layers import first_relu, readings, rows
from torch import Tensor

from fedguard.contracts import ONE_VECTOR_AND_ROOT, InferenceAttack, InferenceView, Reconstruction, Sight

#: How many inputs of the root data are used, or stand-ins where the server has none.
DUMMIES = 1000


@dataclass(frozen=True, kw_only=True)
class TrapWeights(InferenceAttack):
    """Makes each neuron of the first layer answer to few inputs, so that many answer to one alone.

    Of each row's weights a random half is negative. With P and N the weighted sums of an input (less the smallest value)
    over the two halves, the neuron is active where s P > N, and s is chosen such that a share 1/B of the inputs activates it.
    Then it shows one input alone with probability (1/B) (1 - 1/B)^(B - 1) for each: x = (dL/dW_i) / (dL/db_i).

    Needs Flatten, dense layer with bias, ReLU. The share is taken on the server's root data where it has any, else on
    noise that is mostly dark (the fourth power of uniform noise), as images on a dark ground are.
    """

    name = "trap_weights"
    source = "Boenisch et al., When the Curious Abandon Honesty: Federated Learning Is Not Private, EuroS&P 2023"
    goal = "reconstruction"
    needs = ONE_VECTOR_AND_ROOT
    active = True

    def check(self, view: InferenceView) -> None:
        first_relu(view)

    def tamper(self, view: InferenceView) -> Tensor:
        first, _ = first_relu(view)
        model = view.models[-1].clone()
        weight, bias = first.weight(model), first.bias(model)
        low, high = view.value_range
        generator = view.rng.child("trap_weights").torch()
        width = weight.shape[1]
        if Sight.ROOT_DATA in view.granted:
            x = view.root.x[:DUMMIES].flatten(1) - low
        else:
            x = (high - low) * torch.rand(DUMMIES, width, generator=generator) ** 4
        size = torch.randn(weight.shape, generator=generator).abs() / width**0.5
        negative = torch.rand(weight.shape, generator=generator).argsort(1) < width // 2
        up, down = x @ (size * ~negative).T, x @ (size * negative).T
        scale = (down / up).nan_to_num(nan=torch.inf).quantile(1 / max(view.count, 2), dim=0)
        weight.copy_(torch.where(negative, -size, scale[:, None] * size))
        bias.copy_(-low * weight.sum(1))
        return model

    def infer(self, view: InferenceView) -> Reconstruction:
        return Reconstruction(readings(view, *rows(view)))
