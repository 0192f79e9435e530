"""A node that never mixes: it trains alone, and sends what it has."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import PoisonAttack, Sight, lies
from fedguard.contracts.channels import MIXING


@dataclass(frozen=True, kw_only=True)
class Hermit(PoisonAttack):
    """Trains and sends as honest nodes do, and takes in nothing of what it hears.

    $x <- x + u(x)$ replaces the mixing step of its algorithm. No message is false, but the neighbors mix with a model that
    fits the node's own examples alone and never moves towards theirs. The node may do so to save bandwidth.
    """

    name = "hermit"
    source = "a fault, and no algorithm"
    needs = (Sight.OWN_DATA,)
    goal = "fault"

    @lies(MIXING)
    def mix(self, mixes: bool) -> bool:
        return False
