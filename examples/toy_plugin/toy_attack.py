"""An attack of your own: one class, one file, no edit in FedGuard."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class ToyDrift(PoisonAttack):
    """Every malicious client pushes all parameters the same small way, round after round.

    b = step * (1, ..., 1).

    Args:
        step: how far, in the units of the updates.
    """

    name = "toy_drift"
    source = "the plug-in example of FedGuard"
    needs = (Sight.NOTHING,)  # it looks at nothing, so it runs under every threat model and protocol

    step: PositiveFloat = 0.1

    def craft(self, view: PoisonView) -> Tensor:
        return torch.full((view.f, view.dim), self.step)
