"""Pairwise label flip (Han et al., NeurIPS 2018; Tolpegin et al., ESORICS 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedguard.contracts import DataView, Examples, NonNegativeInt, PoisonAttack, Sight
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class PairwiseFlip(PoisonAttack):
    """Malicious clients train honestly on labels moved to the next class: y becomes (y + 1) mod C; or on one class renamed.

    $y <- (y + 1) mod C$ with C classes.

    With ``source_class`` and ``target_class`` only the first becomes the second, and all other labels stay.

    Args:
        source_class, target_class: the pair; None for both moves every class to the next.
    """

    name = "pairwise_flip"
    source = "Tolpegin et al., Data Poisoning Attacks Against Federated Learning Systems, ESORICS 2020"
    needs = (Sight.OWN_DATA,)

    source_class: NonNegativeInt | None = None
    target_class: NonNegativeInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = (self.source_class, self.target_class)
        require(
            (self.source_class is None) == (self.target_class is None) and (pair[0] is None or pair[0] != pair[1]),
            "pairwise_flip: source_class, target_class: expected two different classes, or neither; "
            f"got {pair[0]} and {pair[1]}.",
        )

    def poison(self, examples: Examples, view: DataView) -> Examples:
        if self.source_class is None or self.target_class is None:
            return examples.replace(y=(examples.y + 1) % view.classes)
        for label in (self.source_class, self.target_class):
            require(label < view.classes, f"pairwise_flip: expected classes below {view.classes}; got {label}.")
        flipped = torch.full_like(examples.y, self.target_class)
        return examples.replace(y=torch.where(examples.y == self.source_class, flipped, examples.y))
