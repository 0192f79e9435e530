"""Duplicated clients: one message that is counted twice."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, Sight


@dataclass(frozen=True, kw_only=True)
class DuplicatedClient(PoisonAttack):
    """Each faulty client sends exactly what one honest client sends, as if its message were delivered twice.

    The duplicated client is the honest one with the next higher number (after the highest comes the lowest), in a round
    without it the next one present. So with all clients in each round it is always the same one. Unlike mimic nobody
    chooses it, and several clients are duplicated rather than one many times. In a round without honest clients the faulty
    ones send zeros. The fault needs access to the update that it duplicates.
    """

    name = "duplicated_client"
    source = "a fault seen in practice: a device enrolled twice, or a message sent again and not recognised"
    goal = "fault"
    needs = (Sight.HONEST_UPDATES,)

    def craft(self, view: PoisonView) -> Tensor:
        clients = view.honest_clients
        if not clients:
            return torch.zeros(view.f, view.dim)
        # False sorts first: the lowest number above the client's own, else the lowest of all
        doubled = [min(clients, key=lambda honest: (honest < client, honest)) for client in view.malicious]
        return view.honest[[clients.index(honest) for honest in doubled]]
