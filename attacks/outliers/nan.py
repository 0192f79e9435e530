"""A client whose training has diverged: its update is not a number."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, Sight


@dataclass(frozen=True, kw_only=True)
class NotANumber(PoisonAttack):
    """Sends NaN in every coordinate, as a client does whose loss has overflown.

    The server drops such updates and reports them; without that guard one of them destroys even the median.
    """

    name = "nan"
    source = "a fault seen in practice, not an attack from a paper"
    goal = "fault"
    needs = (Sight.NOTHING,)

    def craft(self, view: PoisonView) -> Tensor:
        return torch.full((view.f, view.dim), float("nan"))
