"""Quantity skew: clients of very different sizes (Li et al., ICDE 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition, PositiveFloat, PositiveInt
from fedguard.errors import require
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class QuantitySkew(Partition):
    """Deals out shuffled examples in shares drawn from Dirichlet(alpha, ..., alpha): clients of very different sizes.

    Args:
        alpha: concentration; 0.5 is severe, 100 is almost equal.
        smallest: examples that each client gets beforehand.
    """

    name = "quantity_skew"
    source = "Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study, ICDE 2022"

    alpha: PositiveFloat = 0.5
    smallest: PositiveInt = 2

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        free = len(examples) - clients * self.smallest
        require(
            free >= 0,
            f"quantity_skew: expected {self.smallest} examples per client; got {len(examples)} for {clients} clients.",
        )
        draw = rng.numpy()
        shares = draw.dirichlet(np.full(clients, self.alpha))
        ends = np.round(np.cumsum(shares) * free).astype(int) + self.smallest * np.arange(1, clients + 1)
        return np.split(draw.permutation(len(examples)), ends[:-1])
