"""Lying about the loss of a model, where the best model is handed to all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import lies
from fedguard.contracts.channels import LOSS


@dataclass(frozen=True, kw_only=True)
class UnderstatedLoss(SignFlip):
    """Claims the best model, and reverses what it is asked for.

    $b = -scale * mu$, with mu the mean of the benign sample, and a claim of ``factor`` times the true loss. Under `dlion`
    the node with the least claimed loss sends its model to all nodes, which move most of the way towards it. If a model is
    requested, mu is the step that the receiver took in this round, so the model leads the receiver back, and beyond. Other
    algorithms do not ask for the loss.

    Args:
        factor: claimed loss over true loss.
        scale: how far backwards.
    """

    name = "understated_loss"
    source = "own; that the least loss leads is of Hong and Chandra, DLion, HPDC 2021"

    factor: Annotated[float, Ge(0)] = 0.0

    @lies(LOSS)
    def claim_loss(self, loss: float) -> float:
        return self.factor * loss
