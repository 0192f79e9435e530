"""Model replacement (Bagdasaryan et al., AISTATS 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.attacks.backdoor.backdoor import Backdoor
from fedguard.contracts import PoisonView, PositiveFloat


@dataclass(frozen=True, kw_only=True)
class ModelReplacement(Backdoor):
    """Trains a backdoored model on partly triggered data, and boosts the update so that it replaces the global one.

    $b = boost * (w_backdoored - w)$. With the mean and $boost = n / (f * server_lr)$, the default, the global model
    becomes the malicious clients' average model, apart from what the honest clients add.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step).
        trigger: activates the backdoor.
        boost: factor on the update; None takes $n / (f * server_lr)$.
    """

    name = "model_replacement"
    source = "Bagdasaryan et al., How To Backdoor Federated Learning, AISTATS 2020"

    boost: PositiveFloat | None = None

    def craft(self, view: PoisonView) -> Tensor:
        # A mean of n updates, times server_lr, adds f boost / n server_lr of their mean: 1 with this boost
        boost = self.boost if self.boost is not None else view.n / (view.f * view.server_lr)
        return boost * view.own
