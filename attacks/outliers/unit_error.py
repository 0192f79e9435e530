"""A client that computes in other units."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight


@dataclass(frozen=True, kw_only=True)
class UnitError(PoisonAttack):
    """Every faulty client sends its own honest update times the same factor, as if in centimetres instead of metres.

    $b_i = factor * x_i$. Unlike huge_value it is moderate and common to all faulty clients: the direction is right, so a rule
    that clips loses nothing, while the mean takes far too long a step.

    Args:
        factor: what the update is multiplied by.
    """

    name = "unit_error"
    source = "a fault seen in practice, not an attack from a paper"
    goal = "fault"
    needs = (Sight.OWN_DATA,)

    factor: PositiveFloat = 100.0

    def craft(self, view: PoisonView) -> Tensor:
        return self.factor * view.own
