"""An attack on one range of the coordinates; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import BENIGN_SAMPLE, NonNegativeInt, PoisonAttack, PoisonView, PositiveFloat, PositiveInt
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class OneRange(PoisonAttack):
    """Reverses the mean update on one range of coordinates.

    $b = -tau mu$ on the coordinates of the range and $mu$ elsewhere, where $mu$ is the mean of the benign sample. Ranges
    are contiguous and of nearly equal size, like the shards of a parameter server. The change is small in the distance
    between whole vectors; a rule applied to each range alone sees all of it.

    Args:
        ranges: number of ranges.
        of: index of the attacked range, from 0.
        tau: how far backwards, in units of the mean.
    """

    name = "one_range"
    source = "FedGuard; cf. Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014"
    needs = BENIGN_SAMPLE

    ranges: PositiveInt = 5
    of: NonNegativeInt = 0
    tau: PositiveFloat = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.of < self.ranges,
            f"one_range: of: expected less than ranges = {self.ranges}; got {self.of}. Count ranges from 0.",
        )

    def craft(self, view: PoisonView) -> Tensor:
        row = view.benign.mean(0)
        keys = torch.arange(len(row)).tensor_split(self.ranges)[self.of]
        row[keys] *= -self.tau
        return row.expand(view.f, -1)
