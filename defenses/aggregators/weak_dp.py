"""Weak differential privacy (Sun et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, NonNegativeFloat, PositiveFloat, RuleContext, WeightRule


@dataclass(frozen=True, kw_only=True)
class WeakDP(WeightRule):
    """The mean of the clipped updates, with a little Gaussian noise against what a backdoor hides in it.

    $R(x) = (1/n) sum_i x_i min(1, C / |x_i|) + N(0, sigma^2 I) / eta$ with $eta$ the server's step, so that the new model
    gets noise of $sigma$. The noise is far smaller than a privacy guarantee requires, and none is claimed.

    Args:
        bound: C, in the units of the updates; None takes the median length in the round, as `clip` does. The source picks
            a bound and a noise for each of its tasks; programs that compare with it clip to 2 to 5, and add 0.025.
        noise: $sigma$, standard deviation in each parameter, of the model.
    """

    name = "weak_dp"
    source = "Sun et al., Can You Really Backdoor Federated Learning?, 2019"
    needs = ROWS
    estimates_mean = False
    breakdown = "bounds what each malicious update adds; it removes none"
    cost = "O(nd): norms"
    grid: ClassVar = {"bound": (None, 0.1, 0.3, 1.0, 3.0), "noise": (1e-4, 1e-3, 1e-2)}

    bound: PositiveFloat | None = 5.0
    noise: NonNegativeFloat = 0.025

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {"noise": self.noise * torch.randn(dim, generator=context.rng.torch())}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        norms = gram.norms()
        bound = norms.quantile(0.5) if self.bound is None else self.bound
        shares = (bound / norms).clamp(max=1).nan_to_num(nan=1.0) / gram.n
        # The server multiplies by its step, which must not scale the noise in the model
        return torch.cat([shares, torch.tensor([1 / context.server_lr], dtype=torch.float64)])
