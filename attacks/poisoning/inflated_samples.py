"""Lying about the number of examples; after Portnoy et al. (2020)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import PositiveInt


@dataclass(frozen=True, kw_only=True)
class InflatedSamples(SignFlip):
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

    factor: PositiveInt = 10

    def claim(self, samples: int) -> int:
        return self.factor * samples
