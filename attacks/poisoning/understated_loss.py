"""Lying about the loss of a model, where the best model is handed to all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from fedguard.attacks.poisoning.sign_flip import SignFlip


@dataclass(frozen=True, kw_only=True)
class UnderstatedLoss(SignFlip):
    """Claims the best model, and reverses what it is asked for.

    $b = -scale * mu$, mu the mean of the benign sample, with a claim of ``factor`` times the true loss. Under `dlion` the node
    that tells the least loss sends its model to all, which go most of the way towards it. Where a model is asked for, mu is
    the way that the receiver went in this round, so that it is led back, and beyond. Elsewhere nobody asks.

    Args:
        factor: how many times the true loss.
        scale: how far backwards.
    """

    name = "understated_loss"
    source = "own; that the least loss leads is of Hong and Chandra, DLion, HPDC 2021"

    factor: Annotated[float, Ge(0)] = 0.0

    def claim_loss(self, loss: float) -> float:
        return self.factor * loss
