"""Trap weights (Boenisch et al., EuroS&P 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.inference.layers import first_relu, readings, rows
from fedguard.contracts import (
    ONE_VECTOR_AND_ROOT,
    InferenceAttack,
    InferenceView,
    ProperFraction,
    Reconstruction,
    Sight,
)

#: Number of inputs of the root data that are used, or of dummies if the server has none.
DUMMIES = 1000
#: Largest |log s|.
MOST = 5.0


@dataclass(frozen=True, kw_only=True)
class TrapWeights(InferenceAttack):
    """Makes each neuron of the first layer answer to few inputs, so that many answer to one alone.

    A random half of each row's weights is negative. With P and N the weighted sums of an input (less the smallest value)
    over the two halves, the neuron is active if $s P > N$, and s is chosen such that a share $1/B$ of the inputs activates
    it. Then it reveals a given input alone with probability $(1/B) (1 - 1/B)^(B - 1)$: $x = (dL/dW_i) / (dL/db_i)$.

    In the paper s is one constant for all rows, and the positive half has the negative half's sizes in other positions.

    It needs Flatten, dense layer with bias, ReLU. The share is taken on the server's root data if it has any (with fewer
    than B examples, on a normal distribution of log s fitted to them), otherwise on noise that is mostly dark (the square
    of uniform noise), like images on a dark background.

    Args:
        factor: s of the paper, such as its 0.95; None fits each row's own.
    """

    name = "trap_weights"
    source = "Boenisch et al., When the Curious Abandon Honesty: Federated Learning Is Not Private, EuroS&P 2023"
    goal = "reconstruction"
    needs = ONE_VECTOR_AND_ROOT
    active = True

    factor: ProperFraction | None = None

    def check(self, view: InferenceView) -> None:
        first_relu(view)

    def tamper(self, view: InferenceView) -> Tensor:
        first, _ = first_relu(view)
        model = view.models[-1].clone()
        weight, bias = first.weight(model), first.bias(model)
        low, _ = view.value_range
        generator = view.rng.child("trap_weights").torch()
        width = weight.shape[1]
        size = torch.randn(weight.shape, generator=generator).abs() / width**0.5
        order = torch.rand(weight.shape, generator=generator).argsort(
            1
        )  # pixels in random order, the negative half first
        if self.factor is None:
            scale = self._fit_scales(view, size, order, generator)
        else:
            scale = torch.tensor(self.factor)
            half = width // 2
            size.scatter_(1, order[:, half : 2 * half], size.gather(1, order[:, :half]))
        weight.copy_(scale * size)
        weight.scatter_(1, order[:, : width // 2], -size.gather(1, order[:, : width // 2]))
        # Sums are taken above the smallest value: <w, x - low> = <w, x> - low sum w
        bias.copy_(-low * weight.sum(1))
        return model

    def _fit_scales(self, view: InferenceView, size: Tensor, order: Tensor, generator: torch.Generator) -> Tensor:
        """float32 ``[k, 1]``: s of each row."""
        low, high = view.value_range
        x = (high - low) * torch.rand(DUMMIES, size.shape[1], generator=generator) ** 2
        if Sight.ROOT_DATA in view.granted and len(view.root) > 1:
            x = view.root.x[:DUMMIES].flatten(1) - low
        down = torch.zeros_like(size).scatter_(1, order[:, : size.shape[1] // 2], 1.0) * size
        ratio = ((x @ down.T) / (x @ (size - down).T)).log().nan_to_num(nan=MOST).clamp(-MOST, MOST)
        share = torch.tensor(1 / max(view.count, 2))
        if len(x) >= view.count:
            return ratio.quantile(share, dim=0).exp()[:, None]
        fitted: Tensor = ratio.mean(0) + ratio.std(0) * torch.special.ndtri(share)
        return fitted.exp()[:, None]

    def infer(self, view: InferenceView) -> Reconstruction:
        return Reconstruction(readings(view, *rows(view)))
