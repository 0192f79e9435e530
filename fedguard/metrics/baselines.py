"""Scores of images that use no update: a reconstruction is worth what it adds to them."""

from __future__ import annotations

import torch
from torch import Tensor

from fedguard.contracts import Examples


def trivial(x: Tensor, claimed: Tensor | None, reference: Examples | None) -> dict[str, Tensor]:
    """Sets of B inputs that use no update, each float32 ``[B, *shape]``.

    constant_color: each true input's own mean, of each channel if it has the shape ``[C, H, W]``. No attacker knows it, and no
    constant is closer: an upper bound for everything that paints in one color. data_mean: the mean of the reference.
    class_mean: the mean of the reference's examples of each claimed class; the mean of all if the label is not claimed or the
    reference has no example of the class.

    Args:
        x: float32 ``[B, *shape]``: the truth.
        claimed: int64, at most B claimed labels; without them there is no class_mean.
        reference: examples of the same kind that are not the truth; without them there is constant_color alone.
    """
    axes = (2, 3) if x.dim() == 4 else tuple(range(1, x.dim()))
    found = {"constant_color": x.mean(axes, keepdim=True).expand_as(x)}
    if reference is not None:
        mean = reference.x.mean(0)
        found["data_mean"] = mean.expand_as(x)
        if claimed is not None:
            of_class = [reference.x[reference.y == label] for label in claimed]
            rows = [some.mean(0) if len(some) else mean for some in of_class]
            found["class_mean"] = torch.stack(rows + [mean] * (len(x) - len(rows)))
    return found
