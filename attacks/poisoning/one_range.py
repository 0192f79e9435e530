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

    $b = -tau mu$ on the coordinates of the range and $mu$ elsewhere, $mu$ the mean of the benign sample. Ranges are
    contiguous and of nearly equal size, as those of the servers of a parameter server. In the distances between whole
    vectors so small a change hides; a rule on each range by itself sees all of it.

    Args:
        ranges: into how many the coordinates are cut.
        of: which of them it is, from 0.
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
