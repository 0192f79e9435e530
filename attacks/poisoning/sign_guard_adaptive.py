"""A reversal with the sign statistics and the length of an honest update; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveInt, Sight
from fedguard.kernels import distances_from, length


@dataclass(frozen=True, kw_only=True)
class SignGuardAdaptive(PoisonAttack):
    """As much of the mean honest update reversed as an honest share of positive and negative values allows.

    $|b_k| = |mu_k|$ or 0. The coordinates are cut into ``parts`` contiguous runs. In each run the N coordinates with the
    largest $mu_k$ become negative, the P with the smallest become positive and the rest 0. P and N are the medians over the
    honest updates of the numbers of positive and negative values in the run. No other choice of P positive and N negative
    signs gives a smaller $<b, mu>$. Then b is scaled to the median honest norm. SignGuard filters on norms and on the
    shares of signs in a block of neighboring coordinates (Xu et al.). It sees an honest client wherever the block lies,
    except at the two ends of the block. The attack does not target the variants that also compare directions.

    Args:
        parts: number of runs, of nearly equal length; 1 matches only the shares of signs of the whole update.
    """

    name = "sign_guard_adaptive"
    source = "FedGuard, against Xu et al., Byzantine-robust FL through Collaborative Malicious Gradient Filtering, ICDCS 2022"
    needs = (Sight.HONEST_UPDATES,)
    adaptive = True

    parts: PositiveInt = 50

    def craft(self, view: PoisonView) -> Tensor:
        honest = view.honest
        if len(honest) == 0:
            return torch.zeros(view.f, view.dim)  # nobody is there to be harmed
        mean = honest.mean(0)
        runs = torch.arange(view.dim).tensor_split(min(self.parts, view.dim))
        signs = torch.cat([_reverse_signs(honest[:, run[0] : run[-1] + 1]) for run in runs])
        reversed_mean = signs * mean.abs()
        usual, own = float(distances_from(honest).median()), length(reversed_mean)
        sent: Tensor = reversed_mean * (usual / own if own > 0 else 0.0)
        return sent.expand(view.f, -1)


def _reverse_signs(honest: Tensor) -> Tensor:
    """float32 ``[b]``: the median numbers of signs in these coordinates (``[h, b]``), assigned against the mean."""
    order, width = honest.mean(0).argsort(), honest.shape[1]
    positive = int((honest > 0).sum(1).median())
    negative = min(int((honest < 0).sum(1).median()), width - positive)
    signs = torch.zeros_like(honest[0])
    signs[order[:positive]] = 1
    signs[order[width - negative :]] = -1
    return signs
