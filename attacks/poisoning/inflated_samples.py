"""Lying about the number of examples; after Portnoy et al. (2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import BENIGN_SAMPLE, PoisonAttack, PoisonView, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True)
class InflatedSamples(PoisonAttack):
    """Claims many examples, and reverses the mean update.

    $b = -scale * mu$, mu the mean of the benign sample, with a claim of ``factor`` times the true number of examples. The
    server cannot count what it does not see: rules that weigh by claims, as `weighted_mean`, follow the lie, and all others
    see a sign flip.

    Args:
        factor: how many times as many as there are.
        scale: how far backwards.
    """

    name = "inflated_samples"
    source = "Portnoy et al., Towards Federated Learning With Byzantine-Robust Client Weighting, 2020"
    needs = BENIGN_SAMPLE

    factor: PositiveInt = 10
    scale: PositiveFloat = 1.0

    def claim(self, samples: int) -> int:
        return self.factor * samples

    def craft(self, view: PoisonView) -> Tensor:
        return (-self.scale * view.benign.mean(0)).expand(view.f, -1)
