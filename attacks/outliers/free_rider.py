"""Free riders (Lin et al., 2019; Fraboni et al., AISTATS 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import NonNegativeFloat, PoisonAttack, PoisonView, Sight


@dataclass(frozen=True, kw_only=True)
class FreeRider(PoisonAttack):
    """Clients that do no work: they return the global model as they got it, perhaps under a little noise.

    $b = N(0, (noise * t^-decay)^2)$ in every coordinate in round t, a zero update for $noise = 0$.

    Args:
        noise: standard deviation of the disguise in the first round, in the units of the updates.
        decay: exponent with which the disguise shrinks, as honest updates do when the training converges; the source
            tries 0.5, 1 and 2.
    """

    name = "free_rider"
    source = "Fraboni et al., Free-rider Attacks on Model Aggregation in Federated Learning, AISTATS 2021"
    goal = "fault"
    needs = (Sight.NOTHING,)

    noise: NonNegativeFloat = 0.0
    decay: NonNegativeFloat = 0.0

    def craft(self, view: PoisonView) -> Tensor:
        scale: float = self.noise * view.round**-self.decay
        return torch.randn(view.f, view.dim, generator=view.rng.torch()) * scale
