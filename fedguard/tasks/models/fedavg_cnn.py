"""The FedAvg CNN (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedguard.contracts import Model
from fedguard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class FedAvgCNN(Model):
    """Two padded 5 x 5 convolutions (32 and 64 channels), each with ReLU and 2 x 2 max pooling, and a dense layer of 512.

    1,663,370 parameters on 28 x 28 gray images.
    """

    name = "fedavg_cnn"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 4:
            raise ConfigError(
                f"fedavg_cnn needs images [channels, height, width] of at least 4 x 4; got inputs of shape {list(shape)}."
            )
        channels, height, width = shape
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 512),
            nn.ReLU(),
            nn.Linear(512, classes),
        )
