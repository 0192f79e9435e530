"""White-box features of each candidate, and an attack model that learns on simulated clients (Nasr et al., S&P 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, MultipleOf
from torch import Tensor

from fedguard.attacks.inference.membership.signals import (
    cosines,
    gradients,
    halves,
    local_updates,
    losses,
    require_candidates,
    victim_updates,
)
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Membership


@dataclass(frozen=True, kw_only=True)
class NasrPassive(InferenceAttack):
    """A classifier of what a candidate's loss and gradient look like beside an update that did or did not train on it.

    Features of candidate x in a round, averaged over the watched rounds: its loss l at the model sent; $log |g|$ of its
    gradient there; $c = cos(-g, u)$ with the update u; $c |g| |u|$, the decrease of the loss by u to first order; and the
    actual decrease. In the paper the attacker knows some of the members. Here it knows none: in each watched round it
    simulates clients that hold random halves of the candidates, by the federation's local plan, and fits a logistic
    regression to them. So the classifier learns the evidence of one update, and the loss at the model sent only measures
    the difficulty of a candidate. It needs updates and models.

    Args:
        simulated: number of simulated clients, even; each holds the same candidates in all rounds.
    """

    name = "nasr_passive"
    source = "Nasr et al., Comprehensive Privacy Analysis of Deep Learning, S&P 2019"
    goal = "membership"
    needs = ONE_VECTOR
    watches = "training"

    simulated: Annotated[int, Ge(2), MultipleOf(2)] = 4

    def infer(self, view: InferenceView) -> Membership:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        inside = halves(self.simulated, len(require_candidates(view)), view.rng.child("halves"))
        rounds = zip(view.models[:-1], victim_updates(view), strict=True)
        seen = [self._features(view, model, update, inside, round) for round, (model, update) in enumerate(rounds)]
        features = torch.stack(seen).mean(0)
        if not bool(features.isfinite().all()):
            return Membership(torch.full_like(features[0, :, 0], torch.nan))  # a model that diverged tells nothing
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        classifier.fit(features[1:].flatten(0, 1).numpy(), inside.flatten().numpy())
        return Membership(torch.from_numpy(classifier.decision_function(features[0].numpy())))

    def _features(self, view: InferenceView, model: Tensor, update: Tensor, inside: Tensor, round: int) -> Tensor:
        """float64 ``[1 + simulated, N, 5]``: with the update sent in row 0, and with the simulated ones after it."""
        candidates, rng = require_candidates(view), view.rng.child("round", round)
        simulated = []
        for client, half in enumerate(inside):
            part = candidates[half]
            simulated.append(local_updates(view, model, part.x[None], part.y[None], rng.child("client", client)))
        updates = torch.cat([update[None], *simulated])
        before, after = losses(view, model[None]), losses(view, model + updates)
        length = torch.cat([block.norm(dim=1) for block in gradients(view, model)]).double()
        cosine = cosines(view, model, updates)
        along = cosine * length * updates.norm(dim=1, keepdim=True)
        hard = torch.stack([before[0], (length + 1e-12).log()]).expand(len(updates), -1, -1)
        return torch.cat([hard, torch.stack([cosine, along, before - after], dim=1)], dim=1).transpose(1, 2)
