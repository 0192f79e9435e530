"""The change between two global models, as malicious clients see it."""

from __future__ import annotations

import torch
from torch import Tensor

from fedguard.contracts import PoisonView


def last_change(view: PoisonView) -> Tensor | None:
    """float32 ``[d]``: the aggregate since the attack last acted, in the units of the updates; None in its first round.

    It is the model's change over the server's step size and the number of rounds: the mean if several rounds passed. With
    server momentum it is the velocity.
    """
    if "last model" not in view.state:
        return None
    rounds = max(view.round - int(view.state["last round"]), 1)
    change: Tensor = (view.model - view.state["last model"]) / (view.server_lr * rounds)
    return change


def with_model(view: PoisonView) -> dict[str, Tensor]:
    """The state that `last_change` needs in the next round."""
    return {"last model": view.model.clone(), "last round": torch.tensor(view.round)}
