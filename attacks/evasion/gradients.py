"""How a model's loss depends on its inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def ascent(logits: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of inputs ``[B, *shape]`` of classes y: the cross-entropy of each (float32 ``[B]``), and its gradient ``[B, *shape]``."""
    with torch.enable_grad():
        inputs = x.detach().clone().requires_grad_()
        losses = torch.nn.functional.cross_entropy(logits(inputs), y, reduction="none")
        return losses.detach(), torch.autograd.grad(losses.sum(), inputs)[0]
