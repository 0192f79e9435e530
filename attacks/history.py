"""What malicious clients learn from the global models that they were sent: the change between two of them."""

from __future__ import annotations

import torch
from torch import Tensor

from fedguard.contracts import PoisonView


def last_change(view: PoisonView) -> Tensor | None:
    """float32 ``[d]``: what the aggregate was since the attack last acted, in the units of the updates; None at first.

    That is the model's change, over the server's step and the number of rounds: of several rounds, their mean. With
    server momentum it is the velocity.
    """
    if "last model" not in view.state:
        return None
    rounds = max(view.round - int(view.state["last round"]), 1)
    change: Tensor = (view.model - view.state["last model"]) / (view.server_lr * rounds)
    return change


def with_model(view: PoisonView) -> dict[str, Tensor]:
    """What `last_change` needs in the next round."""
    return {"last model": view.model.clone(), "last round": torch.tensor(view.round)}
