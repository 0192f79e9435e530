"""Likelihood ratio with shadow models (Carlini et al., S&P 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, MultipleOf
from torch import Tensor

from fedguard.attacks.inference.membership.signals import confidences, shadow_models
from fedguard.contracts import InferenceAttack, InferenceView, Membership, Sight

#: From this many shadow models on, each candidate has variances of its own.
OWN_VARIANCE_FROM = 64


@dataclass(frozen=True, kw_only=True)
class LiRA(InferenceAttack):
    """Compares the model's confidence in a candidate with the confidence of shadow models with and without it.

    With $phi = log p_y - log(1 - p_y)$, and the center and deviation of $phi$ over the shadow models trained on x (in) and
    those trained without x (out):

        online    $score(x) = log N(phi; mu_in, sigma_in) - log N(phi; mu_out, sigma_out)$
        offline   $score(x) = (phi - mu_out) / sigma_out$

    The offline score orders candidates as the paper's $Pr[N(mu_out, sigma_out) < phi]$ does, and does not round to 1.
    Shadow models train on random sets of candidates of about the size of the training set under attack, each candidate in
    the same number of models. Below 64 models the variances are the means over all candidates. It needs the final model,
    and the federation's training for the shadow models.

    Args:
        shadows: number of shadow models, even, 4 and more.
        online: whether the shadow models with the candidate are used as well.
        center: $mu$ is the mean, as in the text of the paper, or the median, as in the authors' program.
    """

    name = "lira"
    source = "Carlini et al., Membership Inference Attacks From First Principles, S&P 2022"
    goal = "membership"
    needs = (Sight.MODEL,)
    watches = "model"

    shadows: Annotated[int, Ge(4), MultipleOf(2)] = 64
    online: bool = True
    center: Literal["mean", "median"] = "median"

    def infer(self, view: InferenceView) -> Membership:
        models, inside = shadow_models(view, self.shadows)
        shadow, phi = confidences(view, models), confidences(view, view.models[-1:])[0]
        pooled = self.shadows < OWN_VARIANCE_FROM
        mean, deviation = _normal(shadow, ~inside, pooled, self.center)
        without = (phi - mean) / deviation
        if not self.online:
            return Membership(without)
        mean_in, deviation_in = _normal(shadow, inside, pooled, self.center)
        ratio = (
            without.square() / 2 + deviation.log() - ((phi - mean_in) / deviation_in).square() / 2 - deviation_in.log()
        )
        return Membership(ratio)


def _normal(values: Tensor, chosen: Tensor, pooled: bool, center: str) -> tuple[Tensor, Tensor]:
    """Center and deviation, ``[N]``, of the ``chosen`` values (bool ``[k, N]``, as many in each) of each column."""
    rows = values.T[chosen.T].view(values.shape[1], -1)
    variance = rows.var(1)
    if pooled:
        variance = variance.mean().expand_as(variance)
    middle = rows.mean(1) if center == "mean" else rows.quantile(0.5, dim=1)
    return middle, variance.sqrt().clamp(min=1e-6)
