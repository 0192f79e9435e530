"""ResNet-20 for small images (He et al., CVPR 2016), with group normalization (Hsieh et al., ICML 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from fedguard.contracts import Model, PositiveInt
from fedguard.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class ResNet20(Model):
    """A 3 x 3 convolution, three stages of three residual blocks, average pooling, a dense layer.

    Shortcuts have no parameters: where a stage halves the image and doubles the channels, they take every second pixel and
    fill up with zeros. The source normalizes over batches (``norm: batch``), which adds running statistics to the parameters:
    ``training.statistics`` says what becomes of them. By default each normalization is over groups of channels of one example.

    Args:
        width: channels of the first stage; with the source's 16, 269,722 parameters on 32 x 32 color images and 10 classes.
        groups: of channels in a normalization over groups.
        norm: over what layers normalize: ``group``, of channels of one example, or ``batch``.
    """

    name = "resnet20"
    source = (
        "He et al., Deep Residual Learning for Image Recognition, CVPR 2016; GroupNorm as in Hsieh et al., ICML 2020"
    )
    later: ClassVar[Mapping[str, Any]] = {"norm": "group"}
    #: Residual blocks of each stage
    blocks: ClassVar[int] = 3

    width: PositiveInt = 16
    groups: PositiveInt = 4
    norm: Literal["group", "batch"] = "group"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.width % self.groups == 0,
            f"{self.name}: width: expected a multiple of groups = {self.groups}; got {self.width}.",
        )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 8:
            raise ConfigError(
                f"{self.name} needs images [channels, height, width] of at least 8 x 8; got inputs of shape {list(shape)}."
            )
        widths = [self.width, *(self.width * factor for factor in (1, 2, 4) for _ in range(self.blocks))]
        return nn.Sequential(
            nn.Conv2d(shape[0], self.width, 3, padding=1, bias=False),
            self._normalize(self.width),
            nn.ReLU(),
            *(
                _ResidualBlock(given, made, [self._normalize(made), self._normalize(made)])
                for given, made in pairwise(widths)
            ),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(widths[-1], classes),
        )

    def _normalize(self, channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels) if self.norm == "batch" else nn.GroupNorm(self.groups, channels)


class _ResidualBlock(nn.Module):
    """``relu(x + norm(conv(relu(norm(conv(x))))))``."""

    def __init__(self, given: int, made: int, norms: Sequence[nn.Module]) -> None:
        super().__init__()
        self.more = made - given
        self.first = nn.Conv2d(given, made, 3, padding=1, stride=2 if self.more else 1, bias=False)
        self.first_norm = norms[0]
        self.second = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.second_norm = norms[1]

    def forward(self, x: Tensor) -> Tensor:
        made = self.second_norm(self.second(relu(self.first_norm(self.first(x)))))
        if self.more:
            x = pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return relu(made + x)
