"""Norm clipping at the client (McMahan et al., ICLR 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedguard.contracts import ClientContext, ClientTransform, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class ClientClipping(ClientTransform):
    """Each honest client shortens its update to a fixed bound before it sends it.

    $y = x min(1, C / |x|)$. Nothing makes a malicious client do so: alone it bounds what honest data reveal, not the
    influence of an attacker. The direction is kept: attackers that compare directions lose nothing, others clip their dummy.

    Args:
        bound: C, in the units of the updates.
    """

    name = "client_clipping"
    source = "McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018"
    needs = (Sight.NOTHING,)
    breakdown = "the breakdown point of the rule behind it"
    cost = "O(nd): norms, at the clients"

    bound: PositiveFloat = 1.0

    def apply(self, update: Tensor, context: ClientContext) -> Tensor:
        # float32 squares overflow beyond 1e19, and a length of infinity would make the update 0
        norm = float(update.double().norm())
        return update * min(1.0, self.bound / norm) if norm > 0 else update.clone()

    def adapt(self, dummy: Tensor, observed: Tensor, module: nn.Module) -> tuple[Tensor, Tensor]:
        # The attacker's optimizer may pass through a dummy of zeros, where the bound over the length would be infinite
        norm = dummy.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(dummy.dtype).tiny)
        return dummy * (self.bound / norm).clamp(max=1), observed
