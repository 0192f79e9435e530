"""Pairwise likelihood ratios against a population (Zarifzadeh et al., ICML 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, MultipleOf

from fedguard.attacks.inference.membership.signals import losses, shadow_models
from fedguard.contracts import Fraction, InferenceAttack, InferenceView, Membership, Sight


@dataclass(frozen=True, kw_only=True)
class RMIA(InferenceAttack):
    """Counts the examples beside which this model, rather than another, favors a candidate.

    $score(x) = Pr_z[(p(x) / pbar(x)) / (p(z) / pbar(z)) >= 1]$

    p is the final model's probability of the true label; z runs over the other candidates. Online, $pbar$ is the mean of p
    over shadow models with and without x. Offline it is $((1 + a) mean_out + 1 - a) / 2$, from the mean over the shadow
    models without x, which estimates the effect of training on x. The paper asks for a ratio of $gamma >= 1$; the score
    never falls as $p(x) / pbar(x)$ rises, so a $gamma$ above 1 only adds ties. It needs the final model, and the
    federation's training for the shadow models.

    Args:
        shadows: number of shadow models, even.
        online: whether the shadow models with the candidate are used as well.
        a: parameter of the offline form, in [0, 1]; 1 assumes that training on x has no effect.
    """

    name = "rmia"
    source = "Zarifzadeh et al., Low-Cost High-Power Membership Inference Attacks, ICML 2024"
    goal = "membership"
    needs = (Sight.MODEL,)
    watches = "model"

    shadows: Annotated[int, Ge(2), MultipleOf(2)] = 8
    online: bool = True
    a: Fraction = 0.3

    def infer(self, view: InferenceView) -> Membership:
        models, inside = shadow_models(view, self.shadows)
        known = -losses(view, models)  # log p
        if self.online:
            mean = known.logsumexp(0) - math.log(self.shadows)
        else:
            without = known.masked_fill(inside, -torch.inf).logsumexp(0) - (~inside).sum(0).log()
            mean = ((1 + self.a) / 2 * without.exp() + (1 - self.a) / 2).log()
        gain = -losses(view, view.models[-1:])[0] - mean  # log(p / pbar)
        beaten = torch.searchsorted(gain.sort().values, gain, right=True) - 1  # x is no z of its own
        return Membership(beaten.double() / max(1, len(gain) - 1))
