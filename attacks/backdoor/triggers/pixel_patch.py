"""Pixel patch (Gu et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PositiveInt, Trigger
from fedguard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PixelPatch(Trigger):
    """A bright square in the lower right corner of an image.

    Args:
        size: edge of the square, in pixels.
    """

    name = "pixel_patch"
    source = "Gu et al., BadNets: Identifying Vulnerabilities in the Machine Learning Model Supply Chain, 2017"

    size: PositiveInt = 2

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        if x.dim() != 4 or min(x.shape[2:]) < self.size:
            raise ConfigError(
                f"pixel_patch(size={self.size}) needs images of at least {self.size} x {self.size} pixels; "
                f"got inputs of shape {list(x.shape[1:])}. Use image data or a smaller patch."
            )
        triggered = x.clone()
        triggered[:, :, -self.size :, -self.size :] = value_range[1]
        return triggered
