"""Cosine of a candidate's gradient with an update (Li et al., ICLR 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedguard.attacks.inference.membership.signals import cosines, victim_updates
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Membership


@dataclass(frozen=True, kw_only=True)
class GradientCosine(InferenceAttack):
    """What a client trained on pulls the way its update goes.

    $score(x) = "mean over the watched rounds of" cos(-grad loss(x, theta_t), u_t)$

    $u_t$ is the victim's update, or the mean that contains it; $theta_t$ is the model sent. It needs updates and models.
    """

    name = "gradient_cosine"
    source = (
        "Li et al., Effective Passive Membership Inference Attacks in Federated Learning Against Overparameterized "
        "Models, ICLR 2023"
    )
    goal = "membership"
    needs = ONE_VECTOR
    watches = "training"

    def infer(self, view: InferenceView) -> Membership:
        rounds = zip(view.models[:-1], victim_updates(view), strict=True)
        return Membership(torch.cat([cosines(view, model, update[None]) for model, update in rounds]).mean(0))
