"""The network of Flower's baseline niid_bench on 28 x 28 gray images, for niid_bench.yaml."""

from __future__ import annotations

from torch import nn


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Convolutions of 6 and 16 channels, 5 x 5 and unpadded, with max pooling; dense layers of 120 and 84; ReLU throughout.

    44,426 parameters on 28 x 28 gray images and 10 classes. `lenet5` has 61,706, because it pads its first convolution.
    ``[B, channels, height, width]`` to logits ``[B, classes]``.
    """
    channels, *sides = shape
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * rows * columns, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
