"""IID partition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition
from fedguard.errors import require
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class IID(Partition):
    """Shuffles the examples and deals them out in parts that differ in size by one at most."""

    name = "iid"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        require(
            len(examples) >= clients,
            f"iid: expected at least one example per client; got {len(examples)} for {clients} clients.",
        )
        return np.array_split(rng.numpy().permutation(len(examples)), clients)
