"""The fast gradient sign method (Goodfellow et al., ICLR 2015)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fedguard.attacks.evasion.gradients import ascent
from fedguard.contracts import EvasionAttack
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class FGSM(EvasionAttack):
    """One step as long as allowed, along which the loss grows fastest.

    $z = x + eps sign(grad_x L(w, x, y))$, or with ``l2`` $x + eps grad / |grad|$; cut to the range of values.
    """

    name = "fgsm"
    source = "Goodfellow et al., Explaining and Harnessing Adversarial Examples, ICLR 2015"

    def perturb(
        self, logits: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, value_range: tuple[float, float], rng: Rng
    ) -> Tensor:
        step = self.uphill(ascent(logits, x, y)[1])
        return self.within(x + self.radius(value_range) * step, x, value_range)
