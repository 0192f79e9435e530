"""Distributed trigger (Xie et al., ICLR 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge
from torch import Tensor

from fedguard.contracts import NonNegativeInt, PositiveInt, Trigger
from fedguard.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class DistributedTrigger(Trigger):
    """Bright bars, of which each malicious client trains on one, while all together call the backdoor (DBA).

    The bars are one pixel high, two in a row, in the upper left corner. The i-th malicious client uses bar i mod parts.

    Args:
        parts: number of bars.
        size: length of a bar, in pixels.
        gap: pixels between neighboring bars, in both directions.
        shift: pixels between the bars and the upper and left edges.
        only: the one bar that is shown, counted from 0; None shows all.
    """

    name = "distributed"
    source = "Xie et al., DBA: Distributed Backdoor Attacks against Federated Learning, ICLR 2020"

    parts: Annotated[int, Ge(2)] = 4
    size: PositiveInt = 2
    gap: NonNegativeInt = 1
    shift: NonNegativeInt = 0
    only: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.only is None or 0 <= self.only < self.parts,
            f"distributed: only: expected a bar from 0 to {self.parts - 1}; got {self.only}.",
        )

    def part(self, position: int) -> Trigger:
        return replace(self, only=position % self.parts)

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        height = self.shift + (self.parts + 1) // 2 * (1 + self.gap) - self.gap
        width = self.shift + 2 * self.size + self.gap
        if x.dim() != 4 or x.shape[2] < height or x.shape[3] < width:
            raise ConfigError(
                f"{self} needs images of at least {height} x {width} pixels; got inputs of shape {list(x.shape[1:])}. "
                "Use image data, or fewer or shorter bars."
            )
        triggered = x.clone()
        for bar in range(self.parts) if self.only is None else (self.only,):
            row = self.shift + bar // 2 * (1 + self.gap)
            left = self.shift + bar % 2 * (self.size + self.gap)
            triggered[:, :, row, left : left + self.size] = value_range[1]
        return triggered
