"""Data and a network of one's own, for own_data.yaml: two moons, and a small network that tells them apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import nn


def moons() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Inputs ``[2000, 2]`` and labels ``[2000]``; the same at each call."""
    draw = np.random.default_rng(0)
    label = np.arange(2000) % 2
    angle = draw.uniform(0, np.pi, 2000)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x = np.where(label[:, None], [1.0, 0.5] - upper, upper)
    return x + draw.normal(0, 0.15, x.shape), label


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """``[B, 2]`` to logits ``[B, 2]``."""
    return nn.Sequential(nn.Linear(shape[0], 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, classes))
