"""A reversal with the sign statistics and the length of an honest update; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, Sight
from fedguard.kernels import distances_from, length


@dataclass(frozen=True, kw_only=True)
class SignGuardAdaptive(PoisonAttack):
    """As much of the mean honest update reversed as an honest share of positive and negative values allows.

    $|b_k|$ is $|mu_k|$ throughout, but for zeros. Of the coordinates the N with the largest $mu_k$ become negative, the P
    with the smallest become positive and the rest 0, P and N the medians over the honest updates of how many of their
    values are positive and negative. No other choice of so many signs gives a smaller $<b, mu>$. Then b is scaled to the
    median honest norm. SignGuard's filters on norms and on shares of signs (Xu et al.) see an honest client, on a random
    part of the coordinates too. Its variants that also compare directions are not aimed at.
    """

    name = "sign_guard_adaptive"
    source = "FedGuard, against Xu et al., Byzantine-robust FL through Collaborative Malicious Gradient Filtering, ICDCS 2022"
    needs = (Sight.HONEST_UPDATES,)
    adaptive = True

    def craft(self, view: PoisonView) -> Tensor:
        honest = view.honest
        if len(honest) == 0:
            return torch.zeros(view.f, view.dim)  # nobody is there to be harmed
        mean = honest.mean(0)
        positive = int((honest > 0).sum(1).median())
        negative = min(int((honest < 0).sum(1).median()), view.dim - positive)
        order = mean.argsort()
        signs = torch.zeros_like(mean)
        signs[order[:positive]] = 1
        signs[order[view.dim - negative :]] = -1
        reversed_mean = signs * mean.abs()
        usual, own = float(distances_from(honest).median()), length(reversed_mean)
        sent: Tensor = reversed_mean * (usual / own if own > 0 else 0.0)
        return sent.expand(view.f, -1)
