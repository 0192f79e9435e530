"""Projected gradient descent on the inputs (Madry et al., ICLR 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.evasion.gradients import ascent
from fedguard.contracts import EvasionAttack, PositiveFloat, PositiveInt
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class PGD(EvasionAttack):
    """Many short steps uphill from the input and from random points near it, each brought back to where it may be.

    $z <- P(z + pace eps / steps * uphill(grad_z L(w, z, y)))$, where P is the projection to the ball of radius eps and to
    the range of values. The result is the point with the largest loss over all steps of all starts.

    Args:
        steps: number of steps from each start.
        pace: total length of the steps, in units of the radius.
        starts: points to start from: the input itself, and others drawn uniformly from the cube of the radius.
    """

    name = "pgd"
    source = "Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks, ICLR 2018"

    steps: PositiveInt = 20
    pace: PositiveFloat = 2.5
    starts: PositiveInt = 2

    def perturb(
        self, logits: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, value_range: tuple[float, float], rng: Rng
    ) -> Tensor:
        radius = self.radius(value_range)
        best, worst = x, torch.full((len(x),), -torch.inf)
        for start in range(self.starts):
            z = x
            if start:
                drawn = torch.rand(x.shape, generator=rng.child("start", start).torch())
                z = self.within(x + radius * (2 * drawn - 1), x, value_range)
            # One pass more than steps: the last point is evaluated too, and its own step is discarded
            for _ in range(self.steps + 1):
                losses, slope = ascent(logits, z, y)
                best = torch.where((losses > worst).view(-1, *[1] * (x.dim() - 1)), z, best)
                worst = torch.maximum(worst, losses)
                z = self.within(z + self.pace * radius / self.steps * self.uphill(slope), x, value_range)
        return best
