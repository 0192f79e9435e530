"""Dirichlet partition with equal or given sizes (Acar et al., ICLR 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition, PositiveFloat
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels
from fedguard.tasks.partitions.sizes import client_sizes


@dataclass(frozen=True, kw_only=True)
class InnerDirichlet(Partition):
    """Each client draws its own shares of the classes from Dirichlet(alpha, ..., alpha): label skew with equal or given sizes.

    The examples are dealt one by one: a client that is not full is drawn, and then a class by its shares. Where a class is used
    up, it leaves the shares of all clients; a client whose classes are all used up takes each remaining class alike. So the
    last examples depend less on the shares.

    Args:
        alpha: concentration; 100 is almost IID, 1 is mild, 0.1 is severe.
        sizes: number of examples of each client, or numbers in proportion to it; empty for equal sizes.
    """

    name = "inner_dirichlet"
    source = "Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021"

    alpha: PositiveFloat = 0.5
    sizes: tuple[PositiveFloat, ...] = ()

    later: ClassVar = {"sizes": ()}

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        labels = class_labels(self, examples)
        sizes = client_sizes(self, self.sizes, len(labels), clients)
        known, counts = np.unique(labels, return_counts=True)
        dealt = self._count_dealt(counts, sizes, rng.numpy())
        shuffle = rng.child("examples").numpy()
        pieces = [
            np.split(shuffle.permutation(np.flatnonzero(labels == label)), np.cumsum(column)[:-1])
            for label, column in zip(known, dealt.T, strict=True)
        ]
        return [shuffle.permutation(np.concatenate(part)) for part in zip(*pieces, strict=True)]

    def _count_dealt(self, counts: NDArray[np.int64], sizes: list[int], draw: np.random.Generator) -> NDArray[np.int64]:
        """The number of examples ``[clients, classes]`` that each client gets of each class."""
        shares = draw.dirichlet(np.full(len(counts), self.alpha), len(sizes))
        bounds = _bounds(shares)
        left, missing, waiting = counts.tolist(), list(sizes), list(range(len(sizes)))
        dealt = np.zeros(shares.shape, np.int64)
        while waiting:
            place = int(draw.integers(len(waiting)))
            client = waiting[place]
            if not missing[client]:
                del waiting[place]
                continue
            missing[client] -= 1
            while not left[label := int(bounds[client].searchsorted(draw.random(), side="right"))]:
                shares[:, label] = 0
                shares[shares.sum(1) == 0] = np.array(left) > 0
                shares /= shares.sum(1, keepdims=True)
                bounds = _bounds(shares)
            left[label] -= 1
            dealt[client, label] += 1
        return dealt


def _bounds(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The upper bounds in [0, 1] by which a uniform number chooses a class."""
    bounds: NDArray[np.float64] = shares.cumsum(1)
    bounds /= bounds[:, -1:]
    return bounds
