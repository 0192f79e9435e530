"""Lying about the speed of a device, where work is shared out by what devices say of themselves."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import PositiveFloat


@dataclass(frozen=True, kw_only=True)
class OverstatedRate(SignFlip):
    """Claims a quick device that is always there, and reverses the mean.

    $b = -scale * mu$, mu the mean of the benign sample. Under `decaf` a device tells how many examples a second it trains. One
    that tells ``factor`` times as many claims to have trained on more of them, for which `weighted_mean` gives it more
    weight; and it gets the examples of slow devices of its trusted set, whose updates it then crafts, too. Elsewhere nobody
    asks. With a factor below 1 it is dropped, or gives its own examples away.

    Args:
        factor: how many times as many as it trains.
        scale: how far backwards.
    """

    name = "overstated_rate"
    source = "own; a claim of capability is what DeCaf's shares rest on"

    factor: PositiveFloat = 10.0

    def claim_rate(self, rate: float) -> float:
        return self.factor * rate

    def claim_availability(self, share: float) -> float:
        return 1.0
