"""Honest updates of another time, released where they do harm; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import BENIGN_SAMPLE, PoisonAttack, PoisonView, PositiveFloat, PositiveInt, State


@dataclass(frozen=True, kw_only=True)
class UpdateWithholding(PoisonAttack):
    """Releases old honest updates where they do harm.

    $b = scale * h$ for the stored update h with the least $<h, mu>$, where mu is the mean of the benign sample. For each of
    the last ``memory`` aggregates the attack stores the benign update with the least inner product with the mean at that
    time. Everything it sends was once an honest update: length and direction are honest, only the time is false.

    Args:
        memory: over how many aggregates.
        scale: factor on the released update; above 1 it compensates for an architecture that down-weights stale updates.
    """

    name = "held_back"
    source = "FedGuard; cf. Xie et al., Asynchronous Federated Optimization, 2019"
    needs = BENIGN_SAMPLE

    memory: PositiveInt = 50
    scale: PositiveFloat = 1.0

    def craft(self, view: PoisonView) -> Tensor:
        held = self._remember_update(view)
        worst = (held @ view.benign.mean(0)).argmin()
        return (self.scale * held[worst]).expand(view.f, -1)

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        return {"held": self._remember_update(view)}

    def _remember_update(self, view: PoisonView) -> Tensor:
        """float32 ``[<= memory, d]``: the update kept of each aggregate, this one included."""
        benign = view.benign
        now = benign[(benign @ benign.mean(0)).argmin()]
        return torch.cat([view.state.get("held", now.new_empty(0, view.dim)), now[None]])[-self.memory :]
