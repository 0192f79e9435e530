"""Lying about the number of examples; after Portnoy et al. (2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import lies
from fedguard.contracts.channels import SAMPLES
from fedguard.contracts.claims import MOST


@dataclass(frozen=True, kw_only=True)
class InflatedSamples(SignFlip):
    """Claims many examples, and reverses the mean update.

    $b = -scale * mu$, with mu the mean of the benign sample, and a claim of ``factor`` times the true number of examples.
    The server cannot verify the number: rules that weight by it, such as `weighted_mean`, follow the lie, and all others
    see a sign flip.

    Args:
        factor: how many times as many as there are.
        scale: how far backwards.
    """

    name = "inflated_samples"
    source = "Portnoy et al., Towards Federated Learning With Byzantine-Robust Client Weighting, 2020"

    factor: Annotated[int, Interval(ge=1, le=10**12)] = 10

    @lies(SAMPLES)
    def claim_samples(self, samples: int) -> int:
        return min(self.factor * samples, int(MOST))  # what is more counts nowhere
