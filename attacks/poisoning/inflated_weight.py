"""Lying about a push-sum weight, by which all that a node sends is multiplied."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import PositiveFloat, lies
from fedguard.contracts.channels import WEIGHT


@dataclass(frozen=True, kw_only=True)
class InflatedWeight(SignFlip):
    """Claims a push-sum weight that is too large, and reverses the mean.

    $b = -scale * mu$, with mu the mean of the benign sample, and a claim of ``factor`` times the node's push-sum weight w.
    Under `sgp` a receiving node divides by the sum of the claimed weights, so the lie dominates its mean. The weights of
    all nodes no longer add up to their number, so the nodes' own steps, which are divided by these weights, vanish. Other
    algorithms do not ask for the weight.

    Args:
        factor: how many times its weight.
        scale: how far backwards.
    """

    name = "inflated_weight"
    source = "own; the weights are of Assran et al., Stochastic Gradient Push, ICML 2019"

    factor: PositiveFloat = 10.0

    @lies(WEIGHT)
    def claim_weight(self, weight: float) -> float:
        return self.factor * weight
