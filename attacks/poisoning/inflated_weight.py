"""Lying about a push-sum weight, by which all that a node sends is multiplied."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import PositiveFloat


@dataclass(frozen=True, kw_only=True)
class InflatedWeight(SignFlip):
    """Claims a push-sum weight that is too large, and reverses the mean.

    $b = -scale * mu$, mu the mean of the benign sample, with a claim of ``factor`` times the node's weight w. Under `sgp` a
    node that hears it divides by the sum of what it was told, so that the lie fills nearly all of its mean; and the weights
    of all nodes no longer add up to their number, so that their own steps, which are divided by them, come to nothing.
    Elsewhere nobody asks.

    Args:
        factor: how many times its weight.
        scale: how far backwards.
    """

    name = "inflated_weight"
    source = "own; the weights are of Assran et al., Stochastic Gradient Push, ICML 2019"

    factor: PositiveFloat = 10.0

    def claim_weight(self, weight: float) -> float:
        return self.factor * weight
