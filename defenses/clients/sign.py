"""Signs with one magnitude (Bernstein et al., ICML 2018), at the client."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedguard.contracts import ClientContext, ClientTransform


@dataclass(frozen=True, kw_only=True)
class Sign(ClientTransform):
    """Each honest client sends the signs of its update, at its mean magnitude.

    $y = sign(x) |x|_1 / d$; the magnitude keeps the length in step with the update's. No formal guarantee. An attacker
    compares smoothed signs: $tanh(dummy / rms(dummy))$ times the magnitude that was sent.
    """

    name = "sign"
    source = "Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, ICML 2018"
    breakdown = "the breakdown point of the rule behind it"
    cost = "O(nd): signs, at the clients"

    def apply(self, update: Tensor, context: ClientContext) -> Tensor:
        return update.sign() * update.abs().double().mean().to(update.dtype)

    def adapt(self, dummy: Tensor, observed: Tensor, module: nn.Module) -> tuple[Tensor, Tensor]:
        # sign() has a gradient of 0 everywhere, so that the attacker could not optimize through it; tanh has one
        size = dummy.square().mean(-1, keepdim=True).sqrt().clamp(min=torch.finfo(dummy.dtype).tiny)
        return torch.tanh(dummy / size) * observed.abs().max(), observed
