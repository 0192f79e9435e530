"""Cocktail Party (Kariyappa et al., ICML 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedguard.attacks.inference.layers import first_dense, inputs, rows
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, PositiveInt, Reconstruction

Nonlinearity = Literal["tanh", "square", "cube"]

#: Steps of the fixed-point iteration, which converges in far fewer.
STEPS = 60
#: Weight of an input's standard deviation over the pixels against its mean distance from the value range: averages of
#: inputs stay within the range too, but with less contrast.
CONTRAST = 0.05
#: The sine of the least angle between a direction and the selected ones; at a smaller angle it is the same input again.
APART = 0.5


@dataclass(frozen=True, kw_only=True)
class CocktailParty(InferenceAttack):
    """Separates the inputs of a batch, or of a secure sum, as blind source separation separates voices.

    Each row of $dL/dW = dL/dZ^T X$ is a mixture of the B inputs. The rows are reduced to B principal components Z, whitened
    over the pixels. The attack searches the least Gaussian combinations $w Z$ by $w <- E[Z g(w Z)] - E[g'(w Z)] w$ with $g
    = tanh$, $u^2$ and $u^3$. Independence leaves sign and scale open; they follow from the bias: $x = (w dL/dW) / (w
    dL/db)$. From the results of all random starts it selects B, at an angle to each other, that keep to the value range and
    have contrast.

    It needs a network that begins with a dense layer with bias, and more pixels than inputs, the more the better. Similar
    images stay mixed.

    Args:
        starts: random starts for each g and each input.
    """

    name = "cocktail_party"
    source = "Kariyappa et al., Cocktail Party Attack: Breaking Aggregation-Based Privacy in FL, ICML 2023"
    goal = "reconstruction"
    needs = ONE_VECTOR

    starts: PositiveInt = 20

    def check(self, view: InferenceView) -> None:
        first_dense(view)

    def infer(self, view: InferenceView) -> Reconstruction:
        weight, bias, _ = rows(view)
        centered = weight - weight.mean(1, keepdim=True)
        # Centered over the pixels, as ICA asks; the inputs' own means return with the uncentered weight below
        left, sizes, right = torch.linalg.svd(centered, full_matrices=False)
        rank = min(view.count, int((sizes > 1e-6 * sizes.max()).sum())) if len(sizes) else 0
        if rank == 0:
            return Reconstruction(inputs(view, weight[:0]))
        white = right[:rank] * right.shape[1] ** 0.5
        generator = view.rng.child("cocktail_party").torch()
        start = torch.randn(self.starts * rank, rank, generator=generator, dtype=white.dtype)
        found = torch.cat([least_gaussian(white, start, name) for name in get_args(Nonlinearity)])
        unmixing = found / sizes[:rank] @ left[:, :rank].T
        x = unmixing @ weight / (unmixing @ bias)[:, None]
        low, high = view.value_range
        outside = ((x - high).clamp(min=0) + (low - x).clamp(min=0)).mean(1)
        # Inputs with a bias gradient of 0 divide by zero, and are taken last
        cost = (outside - CONTRAST * x.std(1)).nan_to_num(nan=torch.inf)
        return Reconstruction(inputs(view, x[distinct(found, cost, rank)]))


def least_gaussian(white: Tensor, start: Tensor, name: Nonlinearity) -> Tensor:
    """float64 ``[m, r]``: unit directions at the end of FastICA's fixed-point iteration.

    Args:
        white: float64 ``[r, n]``: uncorrelated rows of mean 0 and variance 1.
        start: float64 ``[m, r]``: where it starts.
        name: of g.
    """
    directions: Tensor = start / start.norm(dim=1, keepdim=True)
    for _ in range(STEPS):
        u = directions @ white
        if name == "tanh":
            value, slope = u.tanh(), 1 - u.tanh() ** 2
        else:
            value, slope = (u**2, 2 * u) if name == "square" else (u**3, 3 * u**2)
        directions = value @ white.T / white.shape[1] - slope.mean(1, keepdim=True) * directions
        directions = directions / directions.norm(dim=1, keepdim=True)
    return directions


def distinct(directions: Tensor, cost: Tensor, count: int) -> list[int]:
    """At most ``count`` rows by ascending cost, each at an angle to the span of those before."""
    chosen: list[int] = []
    rest = directions  # less the projection on the selected ones
    for row in cost.argsort(stable=True).tolist():
        if len(chosen) < count and float(rest[row].norm()) > APART:
            chosen.append(row)
            new = rest[row] / rest[row].norm()
            rest = rest - (rest @ new)[:, None] * new
    return chosen
