"""Inner product manipulation, "fall of empires" (Xie et al., UAI 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import BENIGN_SAMPLE, PoisonAttack, PoisonView, PositiveFloat


@dataclass(frozen=True, kw_only=True)
class IPM(PoisonAttack):
    """A short step against the mean benign update: small enough to be selected, negative in inner product with it.

    $b = -tau * mu$, $mu$ the mean of the benign sample.

    Args:
        tau: strength. Below about 1 it aims at rules that select or trim; a mean falls only to $tau > (n - f) / f$.
    """

    name = "ipm"
    source = "Xie et al., Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation, UAI 2020"
    needs = BENIGN_SAMPLE

    tau: PositiveFloat = 0.5

    def craft(self, view: PoisonView) -> Tensor:
        return (-self.tau * view.benign.mean(0)).expand(view.f, -1)
