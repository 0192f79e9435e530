"""Dirichlet partition (Hsu et al., 2019; in the form of Li et al., ICDE 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition, PositiveFloat, PositiveInt
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels

Numbers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Deals each class out in shares drawn from Dirichlet(alpha, ..., alpha): label skew and unequal sizes.

    Args:
        alpha: concentration; 100 is almost IID, 1 is mild, 0.1 is severe.
        smallest: examples that each client must have; the draw is repeated until all do, up to 1,000 times.
    """

    name = "dirichlet"
    source = "Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study, ICDE 2022"

    alpha: PositiveFloat = 0.5
    smallest: PositiveInt = 2

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[Numbers]:
        labels = class_labels(self, examples)
        classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        for attempt in range(1000):
            draw = rng.child(attempt).numpy()
            dealt = [self._split_class(members, clients, draw) for members in classes]
            if np.sum([sizes for _, sizes in dealt], axis=0).min() >= self.smallest:
                pieces = [np.split(members, np.cumsum(sizes)[:-1]) for members, sizes in dealt]
                return [draw.permutation(np.concatenate(part)) for part in zip(*pieces, strict=True)]
        raise ConfigError(
            f"dirichlet(alpha={self.alpha:g}) left one of {clients} clients with fewer than {self.smallest} of the "
            f"{len(labels)} examples in each of 1,000 draws. Raise alpha, or lower clients.total or smallest."
        )

    def _split_class(self, members: Numbers, clients: int, draw: np.random.Generator) -> tuple[Numbers, Numbers]:
        """The examples of one class in the order in which they are dealt, and how many each client gets."""
        shuffled = draw.permutation(members)
        cuts = np.cumsum(draw.dirichlet(np.full(clients, self.alpha)))[:-1] * len(shuffled)
        return shuffled, np.diff(cuts.astype(int), prepend=0, append=len(shuffled))
