"""ResNet-8 for small images: the network of He et al., CVPR 2016, with one residual block in a stage."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import PositiveInt
from fedguard.tasks.models.resnet20 import ResNet20


@dataclass(frozen=True, kw_only=True)
class ResNet8(ResNet20):
    """A 3 x 3 convolution, three stages of one residual block, average pooling, a dense layer.

    Everything else is as in ``resnet20``.

    Args:
        width: channels of the first stage; with 8, 19,618 parameters on 32 x 32 color images and 10 classes.
    """

    name = "resnet8"
    blocks = 1

    width: PositiveInt = 8
