"""Constrain and scale (Bagdasaryan et al., AISTATS 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedguard.attacks.backdoor.model_replacement import ModelReplacement
from fedguard.contracts import DataView, LocalPlan, Share


@dataclass(frozen=True, kw_only=True)
class ConstrainAndScale(ModelReplacement):
    """Model replacement by a model that is trained to look normal: far from the global one costs extra.

    It minimizes $alpha * L_class + (1 - alpha) * |w - w_0|^2$ on the partly triggered data, then sends $b = boost * (w -
    w_0)$. The source leaves the second loss to what the server inspects; the distance is its example for servers that
    inspect lengths.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step, at whose start the distance
            is 0).
        trigger: activates the backdoor.
        boost: factor on the update; None takes $n / (f * server_lr)$.
        alpha: weight of the task and the backdoor against the distance, in (0, 1]; left open by the source.
    """

    name = "constrain_and_scale"

    alpha: Share = 0.7

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        return replace(super().plan(plan, view), adjust=self._gradient)

    def _gradient(self, parameters: Tensor, start: Tensor, gradient: Tensor) -> Tensor:
        return self.alpha * gradient + (1 - self.alpha) * 2 * (parameters - start)
