"""Natural clients: the sources of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition, PositiveInt
from fedguard.errors import ConfigError, require
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class NaturalPartition(Partition):
    """Each client is one of the data's own: a writer, a speaker, a hospital.

    Where the data have more of them than the suite has clients, these are drawn at random, and the others take no part.
    Where they have fewer, the cell is refused: nobody is made up.

    Args:
        smallest: examples that a client must have to be drawn.
        group: how many of the data's own clients each client of the suite is made of, such as the patients of a hospital.
    """

    name = "natural"
    source = "Caldas et al., LEAF: A Benchmark for Federated Settings, 2018"

    smallest: PositiveInt = 2
    group: PositiveInt = 1

    later: ClassVar = {"group": 1}

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        if examples.client is None:
            raise ConfigError("natural: these data do not say which client an example is from. Take another partition.")
        owner = examples.client.numpy()
        counts = np.unique(owner, return_counts=True)[1]
        able = np.flatnonzero(counts >= self.smallest)
        needed = clients * self.group
        require(
            len(able) >= needed,
            f"natural: expected {needed} natural clients with {self.smallest} examples or more; the data have {len(able)}. "
            f"Lower clients.total or smallest{', or group' if self.group > 1 else ''}.",
        )
        chosen = able[rng.numpy().permutation(len(able))[:needed]].reshape(clients, self.group)
        own = np.split(np.argsort(owner, kind="stable"), np.cumsum(counts)[:-1])
        return [np.concatenate([own[one] for one in group]) for group in chosen]
