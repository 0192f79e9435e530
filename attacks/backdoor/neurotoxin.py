"""Neurotoxin (Zhang et al., ICML 2022)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedguard.attacks.backdoor.backdoor import Backdoor
from fedguard.contracts import DataView, LocalPlan, PoisonView, ProperFraction, Sight, State


@dataclass(frozen=True, kw_only=True)
class Neurotoxin(Backdoor):
    """Plants the backdoor in parameters that honest clients hardly move, so that they do not wash it out.

    The share ``top`` of the coordinates with the largest $|w_t - w_(t-1)|$ is forbidden: set to 0 in every local gradient,
    and in the update sent. $w_(t-1)$ is the model of the last round in which the malicious clients acted. In their first
    round they have none, and use the mean of the updates that honest training would give them instead.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step).
        trigger: activates the backdoor.
        top: share of the coordinates that are forbidden.
    """

    name = "neurotoxin"
    source = "Zhang et al., Neurotoxin: Durable Backdoors in Federated Learning, ICML 2022"
    needs = (Sight.OWN_DATA | Sight.MODEL,)

    top: ProperFraction = 0.05

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        return sparing(super().plan(plan, view), view, self.top)

    def craft(self, view: PoisonView) -> Tensor:
        return keep_quiet_coordinates(view, self.top)

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        return {**view.state, "model": view.model}


def sparing(plan: LocalPlan, view: DataView, top: float) -> LocalPlan:
    """The same plan, with the coordinates that honest clients move most held fixed."""
    moved = view.model - view.state["model"] if "model" in view.state else view.clean().mean(0)
    allowed = quiet(moved, top)
    return replace(plan, adjust=lambda parameters, start, gradient: gradient * allowed)


def keep_quiet_coordinates(view: PoisonView, top: float) -> Tensor:
    """float32 ``[f, d]``: the malicious clients' updates without what worker momentum brings back from earlier rounds."""
    return view.own * quiet(view.model - view.state.get("model", view.model), top)


def quiet(moved: Tensor, top: float) -> Tensor:
    """bool ``[d]``: all coordinates except the share ``top`` that moved most, with ties at the threshold excluded."""
    size = moved.abs()
    least = size.topk(max(1, round(top * len(size)))).values[-1]
    # Where nothing moved, all coordinates tie at 0: then none is forbidden, and the attack can act
    return (size < least) | (size == 0)
