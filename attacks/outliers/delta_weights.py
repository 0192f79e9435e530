"""Free riders who send back the last change of the global model (Lin et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.history import last_change, with_model
from fedguard.contracts import NonNegativeFloat, PoisonAttack, PoisonView, Sight, State


@dataclass(frozen=True, kw_only=True)
class DeltaWeights(PoisonAttack):
    """Clients that do no work: they send what the global model last moved by, as if it were their own update.

    $b = (w_t - w_{t-1}) / "server step"$, plus optional noise $N(0, noise^2)$ in every coordinate, which each client draws
    separately. After rounds without the clients it is the mean change over these rounds. In the first round the clients
    send zeros (and the noise); in the source they send random weights.

    Args:
        noise: standard deviation of the disguise, in the units of the updates.
    """

    name = "delta_weights"
    source = "Lin et al., Free-riders in Federated Learning: Attacks and Defenses, 2019"
    goal = "fault"
    needs = (Sight.MODEL,)

    noise: NonNegativeFloat = 0.0

    def craft(self, view: PoisonView) -> Tensor:
        change = last_change(view)
        sent = torch.zeros_like(view.model) if change is None else change
        return sent + self.noise * torch.randn(view.f, view.dim, generator=view.rng.torch())

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        return with_model(view)
