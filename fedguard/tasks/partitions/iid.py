"""IID partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition, PositiveFloat
from fedguard.rng import Rng
from fedguard.tasks.partitions.sizes import client_sizes


@dataclass(frozen=True, kw_only=True)
class IID(Partition):
    """Shuffles the examples and deals them out in parts that differ in size by one at most, or have given sizes.

    Args:
        sizes: number of examples of each client, or numbers in proportion to it; empty for equal parts.
    """

    name = "iid"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"

    sizes: tuple[PositiveFloat, ...] = ()

    later: ClassVar = {"sizes": ()}

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        sizes = client_sizes(self, self.sizes, len(examples), clients)
        return np.split(rng.numpy().permutation(len(examples)), np.cumsum(sizes)[:-1])
