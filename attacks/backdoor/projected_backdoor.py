"""Projected gradient descent with model replacement (Sun et al., 2019; Wang et al., NeurIPS 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedguard.attacks.backdoor.model_replacement import ModelReplacement
from fedguard.contracts import DataView, LocalPlan, PoisonView, PositiveFloat, State
from fedguard.kernels import distances_from


@dataclass(frozen=True, kw_only=True)
class ProjectedBackdoor(ModelReplacement):
    """Model replacement that stays within the length of an honest update, in training and in what it sends.

    After each local step $w <- w_0 + P(w - w_0)$, and $b = P(boost * (w - w_0))$, with $P(v) = v * min(1, bound / |v|)$.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step).
        trigger: activates the backdoor.
        boost: factor on the update before the last projection; None takes $n / (f * server_lr)$.
        bound: the maximum length; None takes the mean length of the updates that honest training would give the malicious
            clients in this round, which passes a server that clips or filters by length. The source sets it by hand.
    """

    name = "projected_backdoor"
    source = "Wang et al., Attack of the Tails: Yes, You Really Can Backdoor Federated Learning, NeurIPS 2020"

    bound: PositiveFloat | None = None

    def prepare(self, view: DataView) -> State:
        bound = distances_from(view.clean()).mean() if self.bound is None else torch.tensor(self.bound)
        return {"bound": bound}

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        bound = float(view.state["bound"])
        return replace(
            super().plan(plan, view), project=lambda parameters, start: start + within(parameters - start, bound)
        )

    def craft(self, view: PoisonView) -> Tensor:
        # `fg.craft` calls this outside of a training, where nothing was prepared
        bound = view.state.get("bound", distances_from(view.own).mean())
        return within(super().craft(view), float(bound))


def within(vectors: Tensor, bound: float) -> Tensor:
    """The nearest point to each vector (along the last dimension) in the ball of this radius."""
    lengths = vectors.double().norm(dim=-1, keepdim=True)
    # The clamp makes the factor exactly 1 inside the ball, so that these updates keep every bit
    shares: Tensor = bound / lengths.clamp(min=bound)
    return vectors * shares.to(vectors.dtype)
