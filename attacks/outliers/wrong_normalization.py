"""Wrong normalization: a client that prepares its inputs with other constants."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import DataView, Examples, PoisonAttack, Sight
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class WrongNormalization(PoisonAttack):
    """Faulty clients scale and shift their inputs by other constants than everybody else.

    x becomes $scale * x + shift$. The mistake happens after the sensor, so values may leave the data's range.

    Args:
        scale: dimensionless. The default, with its shift, takes images in [0, 1] to [-1, 1], the commonest other
            convention; ``scale=255, shift=0`` is a client that forgot to divide its bytes.
        shift: in the units of the inputs.
    """

    name = "wrong_normalization"
    source = "a fault seen in practice, not an attack from a paper"
    goal = "fault"
    needs = (Sight.OWN_DATA,)

    scale: float = 2.0
    shift: float = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.scale != 0, "wrong_normalization: scale: expected any number but 0; got 0.")

    def poison(self, examples: Examples, view: DataView) -> Examples:
        return examples.replace(x=self.scale * examples.x + self.shift)
