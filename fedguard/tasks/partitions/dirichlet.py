"""Dirichlet partition (Hsu et al., 2019; in the form of Li et al., ICDE 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition
from fedguard.errors import ConfigError, require
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Deals each class out in shares drawn from Dirichlet(alpha, ..., alpha): label skew and unequal sizes.

    Args:
        alpha: concentration; 100 is almost IID, 1 is mild, 0.1 is severe.
        smallest: examples that each client must have; the draw is repeated until all do, up to 1,000 times.
    """

    name = "dirichlet"
    source = "Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study, ICDE 2022"

    alpha: float = 0.5
    smallest: int = 2

    def __post_init__(self) -> None:
        require(self.alpha > 0, f"dirichlet: alpha: expected more than 0; got {self.alpha}.")
        require(self.smallest >= 1, f"dirichlet: smallest: expected at least 1 example; got {self.smallest}.")

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        labels = examples.y.numpy()
        for attempt in range(1000):
            parts = self._draw(labels, clients, rng.child(attempt).numpy())
            if min(len(part) for part in parts) >= self.smallest:
                return parts
        raise ConfigError(
            f"dirichlet(alpha={self.alpha:g}) left one of {clients} clients with fewer than {self.smallest} of the "
            f"{len(labels)} examples in each of 1,000 draws. Raise alpha, or lower clients.total or smallest."
        )

    def _draw(self, labels: NDArray[np.int64], clients: int, draw: np.random.Generator) -> list[NDArray[np.int64]]:
        parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            members = draw.permutation(np.flatnonzero(labels == label))
            cuts = np.cumsum(draw.dirichlet(np.full(clients, self.alpha)))[:-1] * len(members)
            for part, piece in zip(parts, np.split(members, cuts.astype(int)), strict=True):
                part.append(piece)
        return [draw.permutation(np.concatenate(part)) for part in parts]
