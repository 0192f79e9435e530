"""Gradient ascent by a malicious server (Nasr et al., S&P 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import cross_entropy

from fedguard.attacks.inference.membership.signals import losses, require_candidates, victim_updates
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Membership, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True)
class NasrActive(InferenceAttack):
    """Raises the candidates' losses on the model that it sends; a client that trains on one lowers it again.

    $theta' = theta + ascent * g$, ``steps`` times, where g is the gradient of the candidates' mean loss. Any training
    lowers the losses of all candidates, so the score is the decrease beyond the decrease along g at $theta'$, with u the
    update:

        $score(x) = loss(x, theta' - s g) - loss(x, theta' + u)$,   $s = -<u, g> / <g, g>$

    It needs an update, or a sum, from the round in which it sends its own model.

    Args:
        ascent: step size of the ascent. A long ascent hides the effect of one example.
        steps: number of steps.
    """

    name = "nasr_active"
    source = "Nasr et al., Comprehensive Privacy Analysis of Deep Learning, S&P 2019"
    goal = "membership"
    needs = ONE_VECTOR
    active = True

    ascent: PositiveFloat = 0.1
    steps: PositiveInt = 3

    def tamper(self, view: InferenceView) -> Tensor:
        model = view.models[-1]
        for _ in range(self.steps):
            model = model + self.ascent * _gradient(view, model)
        return model

    def infer(self, view: InferenceView) -> Membership:
        update, common = victim_updates(view)[-1], _gradient(view, view.model)
        along = (update @ common) / (common @ common).clamp(min=1e-12) * common
        expected, found = losses(view, view.model + torch.stack([along, update]))
        return Membership(expected - found)


def _gradient(view: InferenceView, model: Tensor) -> Tensor:
    """float32 ``[d]``: of the candidates' mean loss at ``model``."""
    candidates = require_candidates(view)
    gradient: Tensor = grad(lambda at: cross_entropy(view.predict(at, candidates.x), candidates.y))(model)
    return gradient
