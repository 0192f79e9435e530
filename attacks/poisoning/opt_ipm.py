"""Inner product manipulation, with the best strength of each round (Allouah et al., AISTATS 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.search import RuleOracle, SearchingAttack, along, spread, strongest_row
from fedguard.contracts import PoisonView
from fedguard.kernels import length


@dataclass(frozen=True, kw_only=True)
class OptIPM(SearchingAttack):
    """IPM whose strength of either sign is searched against the known rule, anew in each round.

    $b = -tau * mu$ with the $tau$ that maximizes $|R - mu|$; the source calls it "fall of empires" and takes the best $tau$
    of a line search. Here the search tries steps from $mu$ to b of lengths 0 and $+-2^-2 ... 2^3$ times $|sigma|$, up to
    $2^13$ if the best is at the end, then golden sections. So the range fits updates of any signal-to-noise ratio. The
    search falls back on a plain reversal, $tau = 1$, if that is better.
    """

    name = "opt_ipm"
    source = "Allouah et al., Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity, AISTATS 2023"
    magnitudes = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

    def search_update(self, view: PoisonView) -> Tensor:
        asked, scale = RuleOracle(view, []), _scale(view.honest)
        # From mu to -mu the step is 2 |mu| long, which is 2 / scale in units of sigma: plain reversal, tau = 1
        return asked.vector(strongest_row(asked, asked.mean, -scale * asked.mean, self.magnitudes, 2 / scale))

    def strength(self, view: PoisonView, crafted: Tensor) -> float:
        mean = view.honest.mean(0)
        return along(crafted[0], torch.zeros_like(mean), -mean)

    def reach(self, view: PoisonView, crafted: Tensor) -> float:
        return (self.strength(view, crafted) + 1) / _scale(view.honest)


def _scale(honest: Tensor) -> float:
    """``|sigma| / |mu|``; 1 where either is 0."""
    sigma, mean = length(spread(honest)), length(honest.mean(0))
    return sigma / mean if sigma > 0 and mean > 0 else 1.0
