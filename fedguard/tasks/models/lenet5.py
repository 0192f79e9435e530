"""LeNet-5 (LeCun et al., Proc. IEEE 1998)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedguard.contracts import Model
from fedguard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LeNet5(Model):
    """Two 5 x 5 convolutions (6 and 16 channels) with max pooling, then dense layers of 120 and 84; ReLU throughout.

    61,706 parameters on 28 x 28 gray images. On images too small for an unpadded second convolution (under 12 pixels
    a side) that one is padded too.
    """

    name = "lenet5"
    source = "LeCun et al., Gradient-Based Learning Applied to Document Recognition, Proceedings of the IEEE 1998"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 4:
            raise ConfigError(
                f"lenet5 needs images [channels, height, width] of at least 4 x 4; got inputs of shape {list(shape)}."
            )
        channels, height, width = shape
        padding = 2 if min(height, width) < 12 else 0
        rows, columns = (((side // 2) + 2 * padding - 4) // 2 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * rows * columns, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )
