"""The gradient of a model's loss in its inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def ascent(logits: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each input ``[B, *shape]`` of class y (float32 ``[B]``), and its gradient ``[B, *shape]``."""
    with torch.enable_grad():
        inputs = x.detach().clone().requires_grad_()
        losses = torch.nn.functional.cross_entropy(logits(inputs), y, reduction="none")
        # The gradient of the sum is each input's own, since no example's logits depend on another example
        return losses.detach(), torch.autograd.grad(losses.sum(), inputs)[0]
