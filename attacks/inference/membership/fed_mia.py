"""FedMIA: the other clients say what a non-member looks like (Zhu et al., CVPR 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedguard.attacks.inference.membership.signals import cosines, losses
from fedguard.contracts import InferenceAttack, InferenceView, Membership, Sight
from fedguard.errors import InputError


@dataclass(frozen=True, kw_only=True)
class FedMIA(InferenceAttack):
    """Holds the victim's update beside the updates of the other clients, who did not train on the candidate.

    $score(x) = "mean over the watched rounds of" Pr[N(mu_t, sigma_t) < s_t]$

    $s_t$ measures the candidate on the victim's update; $mu_t$ and $sigma_t$ are mean and standard deviation of the same
    measure over the other clients' updates. It needs each update of three clients or more, and the models.

    Args:
        measure: ``cosine``: of the candidate's gradient at the model sent with the update (FedMIA-II); ``loss``: minus its
            loss after the update (FedMIA-I).
    """

    name = "fed_mia"
    source = "Zhu et al., FedMIA: An Effective Membership Inference Attack Exploiting All for One Principle, CVPR 2025"
    goal = "membership"
    needs = (Sight.EACH_UPDATE | Sight.MODEL,)
    watches = "training"

    measure: Literal["cosine", "loss"] = "cosine"

    def infer(self, view: InferenceView) -> Membership:
        n = view.updates.shape[1]
        if n < 3:
            raise InputError(
                f"fed_mia: expected the updates of 3 clients or more, for a deviation; got {n}. Add clients."
            )
        others = torch.arange(n) != view.victim
        rounds = []
        for model, updates in zip(view.models[:-1], view.updates, strict=True):
            measured = self._score_updates(view, model, updates)
            deviation, mean = torch.std_mean(measured[others], dim=0)
            # Where the other clients agree exactly, the sign of the difference decides
            rounds.append(torch.special.ndtr((measured[view.victim] - mean) / deviation.clamp(min=1e-12)))
        return Membership(torch.stack(rounds).mean(0))

    def _score_updates(self, view: InferenceView, model: Tensor, updates: Tensor) -> Tensor:
        """float64 ``[n, N]``."""
        if self.measure == "cosine":
            return cosines(view, model, updates)
        return -losses(view, model + updates)
