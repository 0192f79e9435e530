"""CRFL: certifiably robust federated learning (Xie et al., ICML 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, NonNegativeFloat, PositiveFloat, PositiveInt, RuleContext, Sight, WeightRule
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class CRFL(WeightRule):
    """The mean, after which the new model is shortened to a bound and gets Gaussian noise.

    With w the model, $eta$ the server's step and $u = w + eta (1/n) sum_i x_i$, the new model is $u min(1, rho_t / |u|) +
    N(0, sigma^2 I)$, $rho_t = min(bound + growth t, cap)$ in round t, and $R(x)$ is the step from w to it: a combination of
    the updates, w and the noise. It needs only the sum. With server momentum the server takes another step, and the
    model is no longer bounded by $rho_t$.

    This is the training part of the source. Its certificate comes from the votes of many noisy copies of the final model at
    test time, which are not made here: no certificate is claimed. The source evaluates each model before it adds noise, and
    adds none in the last round, since the noisy copies bring their own. Here metrics are computed on the models
    with noise, except from ``last_round`` on.

    Args:
        bound, growth, cap: $rho_t$ in the units of the parameters; with cap None it has no end. The defaults are the
            source's on MNIST; on LOAN it has 2, 0.025 and 5, on EMNIST 4, 0.25 and 100.
        noise: $sigma$, standard deviation in each parameter.
        last_round: from this round on there is no noise; the number of the training's last round does as the source does.
    """

    name = "crfl"
    source = "Xie et al., CRFL: Certifiably Robust Federated Learning against Backdoor Attacks, ICML 2021"
    needs = (Sight.SUM | Sight.MODEL,)
    estimates_mean = False
    breakdown = "bounds the model, and with it what one round can do; it removes no update"
    cost = "O(n^2 d): one Gram matrix"
    grid: ClassVar = {"bound": (1.0, 2.0, 5.0, 15.0), "growth": (0.0, 0.1), "noise": (1e-3, 1e-2)}

    bound: PositiveFloat = 2.0
    growth: NonNegativeFloat = 0.1
    cap: PositiveFloat | None = 15.0
    noise: NonNegativeFloat = 0.01
    last_round: PositiveInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.cap is None or self.cap >= self.bound,
            f"crfl: cap: expected at least bound = {self.bound:g}, or null for none; got {self.cap}.",
        )

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        noisy = self.last_round is None or context.round < self.last_round
        noise = self.noise * noisy * torch.randn(dim, generator=context.rng.torch())
        # Zero noise remains an anchor, so that weights() has one shape in all rounds
        return {"model": context.model, "noise": noise}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        step = context.server_lr
        mean = torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)
        moved = gram.affine(torch.cat([step * mean, torch.tensor([1.0, 0.0], dtype=torch.float64)]))
        # Gram products are about a reference point, of which only weights that add up to 0 are free: so u less the origin
        moved -= gram.unit("origin")
        length = max(0.0, float(moved @ gram.inner @ moved)) ** 0.5
        rho = min(self.bound + self.growth * context.round, math.inf if self.cap is None else self.cap)
        kept = min(1.0, rho / length) if length > 0 else 1.0
        # The server adds its step times the result, so what is meant for the model is divided by the step
        return torch.cat([kept * mean, torch.tensor([(kept - 1) / step, 1 / step], dtype=torch.float64)])
