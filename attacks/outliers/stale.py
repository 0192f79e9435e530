"""Clients that are late: their updates belong to an old model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveInt, Sight, State


@dataclass(frozen=True, kw_only=True)
class StaleUpdate(PoisonAttack):
    """Faulty clients send the honest update they computed some rounds ago.

    A client sends what it computed ``delay`` of its own participations before; until it has that many, its oldest.

    Args:
        delay: age of the update, in rounds in which the client took part.
    """

    name = "stale"
    source = "a fault seen in practice; cf. Xie et al., Asynchronous Federated Optimization, 2019"
    goal = "fault"
    needs = (Sight.OWN_DATA,)

    delay: PositiveInt = 10

    def craft(self, view: PoisonView) -> Tensor:
        history = _with_current(view, self.delay)
        return torch.stack([history[f"client {client}"][0] for client in view.malicious])

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        return _with_current(view, self.delay)


def _with_current(view: PoisonView, delay: int) -> dict[str, Tensor]:
    """Each client's last ``delay + 1`` updates, float32 ``[<= delay + 1, d]``, the oldest first."""
    history = dict(view.state)
    for client, update in zip(view.malicious, view.own, strict=True):
        key = f"client {client}"
        # The state is keyed by client: a client keeps its history over rounds in which it was not sampled
        past = history.get(key, update.new_empty(0, view.dim))
        history[key] = torch.cat([past, update[None]])[-(delay + 1) :]
    return history
