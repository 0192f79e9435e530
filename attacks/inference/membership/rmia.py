"""Pairwise likelihood ratios against a population (Zarifzadeh et al., ICML 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from fedguard.attacks.inference.membership.signals import losses, shadow_models

from fedguard.contracts import InferenceAttack, InferenceView, Membership, Sight
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class RMIA(InferenceAttack):
    """Counts the examples beside which this model, rather than another, favours a candidate.

    score(x) = Pr_z[(p(x) / pbar(x)) / (p(z) / pbar(z)) >= 1]

    p is the final model's probability of the true label; pbar its mean over shadow models, half of them trained on x; z runs
    over the other candidates. The paper asks for a ratio of gamma >= 1; the score never falls as p(x) / pbar(x) rises, so a
    gamma above 1 only adds ties. It needs the final model, and the federation's training for the shadow models.

    Args:
        shadows: number of shadow models, even.
    """

    name = "rmia"
    source = "Zarifzadeh et al., Low-Cost High-Power Membership Inference Attacks, ICML 2024"
    goal = "membership"
    needs = (Sight.MODEL,)
    watches = "model"

    shadows: int = 8

    def __post_init__(self) -> None:
        require(
            self.shadows >= 2 and self.shadows % 2 == 0,
            f"shadows: expected an even number, 2 or more, half of them with each candidate; got {self.shadows}.",
        )

    def infer(self, view: InferenceView) -> Membership:
        models, _ = shadow_models(view, self.shadows)
        mean = (-losses(view, models)).logsumexp(0) - math.log(self.shadows)
        gain = -losses(view, view.models[-1:])[0] - mean  # log(p / pbar)
        beaten = torch.searchsorted(gain.sort().values, gain, right=True) - 1  # x is no z of its own
        return Membership(beaten.double() / max(1, len(gain) - 1))
