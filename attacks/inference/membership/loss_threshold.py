"""Threshold on the loss (Yeom et al., CSF 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.inference.membership.signals import losses
from fedguard.contracts import InferenceAttack, InferenceView, Membership, Sight


@dataclass(frozen=True, kw_only=True)
class LossThreshold(InferenceAttack):
    """What the final model knows well it was trained on.

    $score(x) = -loss(x) = log p_y(x)$, at the final model. It needs the model alone.
    """

    name = "loss"
    source = "Yeom et al., Privacy Risk in Machine Learning, CSF 2018"
    goal = "membership"
    needs = (Sight.MODEL,)
    watches = "model"

    def infer(self, view: InferenceView) -> Membership:
        return Membership(-losses(view, view.models[-1:])[0])
