"""The server's step: it adds the aggregate to the model, with momentum or with an optimizer of FedOpt."""

from __future__ import annotations

import torch
from torch import Tensor

from fedguard.contracts import Cell


class ServerStep:
    """The server's optimizer and its state.

    Args:
        model: float32 ``[d]``, the first model.
    """

    def __init__(self, cell: Cell, model: Tensor) -> None:
        training = self._training = cell.training
        self._factor = cell.server_step
        self._velocity = torch.zeros_like(model)
        self._moments = training.server_optimizer.start(model) if training.server_optimizer else None

    def apply_update(self, model: Tensor, update: Tensor) -> Tensor:
        """The model after the round, float32 ``[d]``, from the one before it and the aggregate (both float32 ``[d]``)."""
        training = self._training
        if training.server_optimizer and self._moments:
            step, self._moments = training.server_optimizer.move(update, self._moments)
        elif training.server_momentum:
            step = self._velocity = training.server_momentum * self._velocity + update
        else:
            step = update
        return model + self._factor * step
