"""ResNet-20 for small images (He et al., CVPR 2016), with group normalization (Hsieh et al., ICML 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from fedguard.contracts import Model, PositiveInt
from fedguard.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class ResNet20(Model):
    """A 3 x 3 convolution, three stages of three residual blocks, average pooling, a dense layer.

    Shortcuts have no parameters: where a stage halves the image and doubles the channels, they take every second pixel and
    fill up with zeros. The source normalizes over batches; batch statistics are no parameters and tell of other clients'
    data, so here each normalization is over groups of channels.

    Args:
        width: channels of the first stage; with the source's 16, 269,722 parameters on 32 x 32 color images and 10 classes.
        groups: of channels in a normalization.
    """

    name = "resnet20"
    source = (
        "He et al., Deep Residual Learning for Image Recognition, CVPR 2016; GroupNorm as in Hsieh et al., ICML 2020"
    )

    width: PositiveInt = 16
    groups: PositiveInt = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.width % self.groups == 0,
            f"resnet20: width: expected a multiple of groups = {self.groups}; got {self.width}.",
        )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 8:
            raise ConfigError(
                f"resnet20 needs images [channels, height, width] of at least 8 x 8; got inputs of shape {list(shape)}."
            )
        widths = [self.width * factor for factor in (1, 1, 1, 1, 2, 2, 2, 4, 4, 4)]
        return nn.Sequential(
            nn.Conv2d(shape[0], self.width, 3, padding=1, bias=False),
            nn.GroupNorm(self.groups, self.width),
            nn.ReLU(),
            *(_ResidualBlock(given, made, self.groups) for given, made in pairwise(widths)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(widths[-1], classes),
        )


class _ResidualBlock(nn.Module):
    """``relu(x + norm(conv(relu(norm(conv(x))))))``."""

    def __init__(self, given: int, made: int, groups: int) -> None:
        super().__init__()
        self.more = made - given
        self.first = nn.Conv2d(given, made, 3, padding=1, stride=2 if self.more else 1, bias=False)
        self.first_norm = nn.GroupNorm(groups, made)
        self.second = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(groups, made)

    def forward(self, x: Tensor) -> Tensor:
        made = self.second_norm(self.second(relu(self.first_norm(self.first(x)))))
        if self.more:
            x = pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return relu(made + x)
