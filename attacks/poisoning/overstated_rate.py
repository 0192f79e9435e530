"""Lying about the speed of a device, where work is shared out by what devices say of themselves."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import PositiveFloat, lies
from fedguard.contracts.channels import AVAILABILITY, RATE


@dataclass(frozen=True, kw_only=True)
class OverstatedRate(SignFlip):
    """Claims a quick device that is always there, and reverses the mean.

    $b = -scale * mu$, with mu the mean of the benign sample. Under `decaf` each device reports how many examples per second
    it trains. A device that reports ``factor`` times its rate claims to have trained on more examples, which
    `weighted_mean` rewards with more weight. It also receives examples from slow devices of its trusted set, and crafts
    updates in their place. Other architectures do not ask for the rate. With a factor below 1 the device is dropped, or
    gives away its own examples.

    Args:
        factor: reported rate over true rate.
        scale: how far backwards.
    """

    name = "overstated_rate"
    source = "own; a claim of capability is what DeCaf's shares rest on"

    factor: PositiveFloat = 10.0

    @lies(RATE)
    def claim_rate(self, rate: float) -> float:
        return self.factor * rate

    @lies(AVAILABILITY)
    def claim_availability(self, share: float) -> float:
        return 1.0
