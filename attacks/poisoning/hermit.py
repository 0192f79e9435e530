"""A node that never mixes: it trains alone, and sends what it has."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import PoisonAttack, Sight


@dataclass(frozen=True, kw_only=True)
class Hermit(PoisonAttack):
    """Trains and sends as honest nodes do, and takes in nothing of what it hears.

    $x <- x + u(x)$ in place of what its algorithm makes of its neighbors' values. No message is a lie; but its neighbors mix
    with a model that fits its own examples alone, and that never comes towards them. It may be saving bandwidth.
    """

    name = "hermit"
    source = "a fault, and no algorithm"
    needs = (Sight.OWN_DATA,)
    goal = "fault"

    def mixes(self) -> bool:
        return False
