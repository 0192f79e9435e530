"""GradDefense (Wang et al., INFOCOM 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedguard.contracts import ClientContext, ClientTransform, NonNegativeFloat, NonNegativeInt, PositiveInt
from fedguard.contracts.tasks import select_trained
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class GradDefense(ClientTransform):
    """Each honest client adds noise to slices of its update that tell equally much of its inputs.

    The sensitivity of layer l is $s_l = mean_x |d(sum_k g_lk)/dx|$, where $g_l$ is the layer's gradient and x an example. A
    layer's coordinates share it equally, and the update is cut, in order, into ``slices`` of equal sensitivity, which have few
    coordinates where these are sensitive. ``noisy`` slices, drawn at random, get noise: $y = x + sigma z$, $z ~ N(0, I)$, with
    $sigma = scale |x| / sqrt(d)$.

    Unlike in the paper, the sensitivity is computed on the client's own examples, not on public ones; $sigma$ is proportional
    to the update's length; and the server does not denoise the mean by its spectrum. No formal guarantee. An attacker does
    not know which slices are noisy and matches the update as it was sent; rows of the first layer without noise still agree
    on $x = dW/db$.

    Args:
        slices: number of slices.
        noisy: number of slices that get noise.
        scale: standard deviation of the noise, over the update's root mean square.
    """

    name = "grad_defense"
    source = "Wang et al., Protect Privacy from Gradient Leakage Attack in Federated Learning, INFOCOM 2022"
    reads_data = True
    by_cross_entropy = True
    breakdown = "the breakdown point of the rule behind it"
    cost = "O(nd), and second derivatives for each tensor of parameters at the clients"

    slices: PositiveInt = 10
    noisy: NonNegativeInt = 5
    scale: NonNegativeFloat = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.noisy <= self.slices,
            f"grad_defense: noisy: expected at most {self.slices}, the number of slices; got {self.noisy}.",
        )

    def apply(self, update: Tensor, context: ClientContext) -> Tensor:
        draw = context.rng.torch()
        chosen = torch.randperm(self.slices, generator=draw)[: self.noisy]
        noise = torch.randn(len(update), generator=draw) * (self.scale * float(update.double().square().mean().sqrt()))
        return update + noise * torch.isin(self._slices(context), chosen)

    def _slices(self, context: ClientContext) -> Tensor:
        """int64 ``[d]``: the slice of each coordinate."""
        sizes = [parameter.numel() for parameter in select_trained(context.module).values()]
        shares = [told / size for told, size in zip(_sensitivities(context, sizes), sizes, strict=True)]
        each = torch.repeat_interleave(torch.tensor(shares, dtype=torch.float64), torch.tensor(sizes))
        total = each.sum()
        if total == 0:  # a network that tells nothing of its inputs: slices of equal length
            each, total = torch.ones_like(each), torch.tensor(float(len(each)))
        # By the middle of each coordinate's share: at its edge rounding would decide the slice
        return ((each.cumsum(0) - each / 2) / total * self.slices).long().clamp(max=self.slices - 1)


def _sensitivities(context: ClientContext, sizes: list[int]) -> list[float]:
    """The sensitivity s_l of each parameter tensor."""
    model, x = context.model.clone().requires_grad_(), context.examples.x.clone().requires_grad_()
    # The mean over the batch scales all sensitivities alike, and only their shares count
    loss = cross_entropy(context.predict(model, x), context.examples.y)
    (gradient,) = torch.autograd.grad(loss, model, create_graph=True)
    told = []
    for layer in torch.split(gradient, sizes):
        # Layers that do not depend on the inputs have no graph to them: their sensitivity is 0
        (slope,) = torch.autograd.grad(layer.sum(), x, retain_graph=True, allow_unused=True, materialize_grads=True)
        told.append(float(slope.flatten(1).norm(dim=1).double().mean()))
    return told
