"""CRFL: certifiably robust federated learning (Xie et al., ICML 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, NonNegativeFloat, PositiveFloat, RuleContext, Sight, WeightRule


@dataclass(frozen=True, kw_only=True)
class CRFL(WeightRule):
    """The mean, after which the new model is shortened to a bound and gets Gaussian noise.

    With w the model, $eta$ the server's step and $u = w + eta (1/n) sum_i x_i$, the new model is $u min(1, rho_t / |u|) +
    N(0, sigma^2 I)$, $rho_t = bound + growth t$ in round t, and $R(x)$ is what takes w there: a combination of the updates,
    w and the noise. It needs no more than the sum. With server momentum the server goes another way, and the model is no
    longer bounded by $rho_t$.

    This is the part of the source that happens in training. Its certificate comes from the votes of many noisy copies
    of the final model at test time, which is no aggregation and not done here: no certificate is claimed. The source spares
    the last round the noise, which those copies bring; here every round has it.

    Args:
        bound: $rho$, in the units of the parameters.
        growth: what is added to it in each round.
        noise: $sigma$, standard deviation in each parameter.
    """

    name = "crfl"
    source = "Xie et al., CRFL: Certifiably Robust Federated Learning against Backdoor Attacks, ICML 2021"
    needs = (Sight.SUM | Sight.MODEL,)
    estimates_mean = False
    breakdown = "bounds the model, and with it what one round can do; it removes no update"
    cost = "O(n^2 d): one Gram matrix"
    grid: ClassVar = {"bound": (1.0, 3.0, 10.0, 30.0), "noise": (1e-3, 1e-2)}

    bound: PositiveFloat = 15.0
    growth: NonNegativeFloat = 0.0
    noise: NonNegativeFloat = 0.01

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {"model": context.model, "noise": self.noise * torch.randn(dim, generator=context.rng.torch())}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        step = context.server_lr
        mean = torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)
        moved = gram.affine(torch.cat([step * mean, torch.tensor([1.0, 0.0], dtype=torch.float64)]))
        moved -= gram.unit("origin")
        length = max(0.0, float(moved @ gram.inner @ moved)) ** 0.5
        kept = min(1.0, (self.bound + self.growth * context.round) / length) if length > 0 else 1.0
        return torch.cat([kept * mean, torch.tensor([(kept - 1) / step, 1 / step], dtype=torch.float64)])
