"""A client whose update is far too large, by an overflow or a flipped bit of an exponent; for units see unit_error.py."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveInt, Sight


@dataclass(frozen=True, kw_only=True)
class HugeValue(PoisonAttack):
    """Some faulty clients send their own honest update times a huge factor; the others send theirs as it is.

    Args:
        factor: what the update is multiplied by.
        count: how many clients do so.
    """

    name = "huge_value"
    source = "a fault seen in practice, not an attack from a paper"
    goal = "fault"
    needs = (Sight.OWN_DATA,)

    factor: float = 1e6
    count: PositiveInt = 1

    def craft(self, view: PoisonView) -> Tensor:
        sent = view.own.clone()
        sent[: self.count] *= self.factor
        return sent
