"""Training on transformed images (Gao et al., CVPR 2021)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi
from typing import Annotated, Literal

import torch
from annotated_types import MinLen
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fedguard.contracts import ClientContext, ClientTransform, Examples
from fedguard.errors import ConfigError, require

Transform = Literal["rotate", "shear", "shift", "flip", "contrast", "brightness", "posterize", "invert"]


@dataclass(frozen=True, kw_only=True)
class ATS(ClientTransform):
    """Each honest client trains on transformed copies of its images, in place of these.

    The transforms of ``policy`` are applied in sequence; each image draws its own amounts in each round. The paper searches
    for the policy that hides most at the least loss of accuracy; the default here was not found by a search. The update
    reveals as much about the transformed images as any update reveals about its images. No formal guarantee. An attacker
    compares as without the defense, and finds the transformed image.

    Args:
        policy: names of transforms: ``rotate`` by up to 60 degrees, ``shear`` by up to a half, ``shift`` by up to a quarter
            of each side, ``flip`` left and right, ``contrast`` 0.25 to 1, ``brightness`` by up to a half of the value
            range, ``posterize`` to 4 values, ``invert``.
    """

    name = "ats"
    source = "Gao et al., Privacy-preserving Collaborative Learning with Automatic Transformation Search, CVPR 2021"
    breakdown = "the breakdown point of the rule behind it"
    cost = "O(nd), and a pass over the images at the clients"

    policy: Annotated[tuple[Transform, ...], MinLen(1)] = ("rotate", "shift", "contrast")

    def __post_init__(self) -> None:
        super().__post_init__()
        known = [*_WARPS, *_POINTWISE]
        require(
            set(self.policy) <= set(known),
            f"ats: policy: expected names out of {', '.join(known)}; got {list(self.policy)}.",
        )

    def prepare(self, examples: Examples, context: ClientContext) -> Examples:
        x, (low, high) = examples.x, context.value_range
        if x.ndim != 4:
            raise ConfigError(
                f"ats needs images [channels, height, width]; got inputs of shape {list(x.shape[1:])}. "
                "Use another defense on tables."
            )
        for number, name in enumerate(self.policy):
            # One stream per place in the policy: what a transform draws does not depend on the transforms before it
            draws = torch.rand(2, len(x), generator=context.rng.child(number).torch()) * 2 - 1
            if name in _WARPS:
                # grid_sample fills with 0, which is the lowest value of the range only after the shift
                x = _warp_images(x - low, _WARPS[name](*draws)) + low
            else:
                x = low + (high - low) * _POINTWISE[name]((x - low) / (high - low), draws[0].view(-1, 1, 1, 1)).clamp(
                    0, 1
                )
        return examples.replace(x=x)

    def apply(self, update: Tensor, context: ClientContext) -> Tensor:
        return update.clone()


def _warp_images(x: Tensor, pulled: Tensor) -> Tensor:
    """The images ``[N, C, H, W]`` under the affine maps ``pulled [N, 2, 3]``, interpolated, and 0 outside."""
    grid = affine_grid(pulled, list(x.shape), align_corners=False)
    return grid_sample(x, grid, align_corners=False)


def _affine(xx: Tensor, xy: Tensor, yx: Tensor, yy: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``[N, 2, 3]``: output (x, y) in [-1, 1] is taken from input (xx x + xy y + x, yx x + yy y + y)."""
    rows = [xx, xy, x, yx, yy, y]
    return torch.stack(rows, dim=1).view(-1, 2, 3)


def _rotate(u: Tensor, _: Tensor) -> Tensor:
    angle, none = u * (pi / 3), torch.zeros_like(u)
    return _affine(angle.cos(), -angle.sin(), angle.sin(), angle.cos(), none, none)


def _shear(u: Tensor, _: Tensor) -> Tensor:
    one, none = torch.ones_like(u), torch.zeros_like(u)
    return _affine(one, u / 2, none, one, none, none)


def _shift(u: Tensor, v: Tensor) -> Tensor:
    one, none = torch.ones_like(u), torch.zeros_like(u)
    return _affine(one, none, none, one, u / 2, v / 2)


def _flip(u: Tensor, _: Tensor) -> Tensor:
    one, none = torch.ones_like(u), torch.zeros_like(u)
    return _affine(-one, none, none, one, none, none)


#: Two draws in [-1, 1] for each of N images -> where each output pixel is taken from, ``[N, 2, 3]``.
_WARPS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rotate": _rotate,
    "shear": _shear,
    "shift": _shift,
    "flip": _flip,
}

#: Values in [0, 1] and a draw in [-1, 1] for each image -> values, which are cut to [0, 1].
_POINTWISE: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "contrast": lambda x, u: x.mean((1, 2, 3), keepdim=True) * (0.375 * (1 - u)) + x * (1 - 0.375 * (1 - u)),
    "brightness": lambda x, u: x + u / 2,
    "posterize": lambda x, _: (x * 4).floor().clamp(max=3) / 3,
    "invert": lambda x, _: 1 - x,
}
