"""Sign flip (Li et al., AAAI 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import BENIGN_SAMPLE, PoisonAttack, PoisonView, PositiveFloat


@dataclass(frozen=True, kw_only=True)
class SignFlip(PoisonAttack):
    """Every malicious client sends the mean benign update with its sign reversed.

    $b = -scale * mu$, $mu$ the mean of the benign sample.

    Args:
        scale: how far backwards; 1 is the source's plain reversal.
    """

    name = "sign_flip"
    source = "Li et al., RSA: Byzantine-Robust Stochastic Aggregation Methods, AAAI 2019"
    needs = BENIGN_SAMPLE

    scale: PositiveFloat = 1.0

    def craft(self, view: PoisonView) -> Tensor:
        return (-self.scale * view.benign.mean(0)).expand(view.f, -1)
