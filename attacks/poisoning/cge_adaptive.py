"""A reversal that is just short enough for comparative gradient elimination; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, ProperFraction, Sight
from fedguard.kernels import distances_from, length


@dataclass(frozen=True, kw_only=True)
class CGEAdaptive(PoisonAttack):
    """The mean honest update reversed, as long as it may be to stay among the n - f shortest.

    $b = -r * mu/|mu|$ with $r = (1 - margin)$ times the $(n - 2f + 1)$-th smallest honest norm. Then comparative gradient
    elimination (CGE; Gupta & Vaidya) keeps all f malicious clients among its $n - f$ updates and drops the f longest honest
    ones. With $n <= 2f$, r stays below every honest norm.

    Args:
        margin: how far below that norm, as a share of it.
    """

    name = "cge_adaptive"
    source = "FedGuard, against Gupta & Vaidya, Fault-Tolerance in Distributed Optimization: The Case of Redundancy, PODC 2020"
    needs = (Sight.HONEST_UPDATES,)
    adaptive = True

    margin: ProperFraction = 0.001

    def craft(self, view: PoisonView) -> Tensor:
        if len(view.honest) == 0:
            return torch.zeros(view.f, view.dim)  # nobody is there to be harmed
        mean, norms = view.honest.mean(0), distances_from(view.honest).sort().values
        # CGE keeps n - f: the f malicious rows and the n - 2f shortest honest ones, so the next honest norm is the bound
        longest, own = float(norms[max(len(norms) - view.f, 0)]), length(mean)
        reversed_mean: Tensor = mean * (-(1 - self.margin) * longest / own if own > 0 else 0.0)
        return reversed_mean.expand(view.f, -1)
