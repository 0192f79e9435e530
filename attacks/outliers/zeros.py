"""A client whose update is zero: its training did not start, or its gradient has vanished."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, Sight


@dataclass(frozen=True, kw_only=True)
class Zeros(PoisonAttack):
    """Sends zeros.

    $b = 0$: it slows a mean down by $f/n$, and is near every small update.
    """

    name = "zeros"
    source = "a fault seen in practice, not an attack from a paper"
    goal = "fault"
    needs = (Sight.NOTHING,)

    def craft(self, view: PoisonView) -> Tensor:
        return torch.zeros(view.f, view.dim)
