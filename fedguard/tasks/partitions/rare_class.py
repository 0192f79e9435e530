"""An honest minority: one class that almost nobody has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, NonNegativeInt, Partition, PositiveInt
from fedguard.errors import require
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels


@dataclass(frozen=True, kw_only=True)
class RareClass(Partition):
    """One class is in the hands of few clients; all other examples are dealt out IID.

    The holders are drawn at random and share the examples of the class evenly, on top of the part of the others that
    every client gets. Their updates look odd and are right: a rule that takes them for outliers loses the class. With the
    same seed, more holders include fewer.

    Args:
        label: the rare class.
        holders: number of clients that hold it.
    """

    name = "rare_class"
    source = "the honest outlier of FedGuard's fault catalog; not a partition from a paper"

    label: NonNegativeInt = 0
    holders: PositiveInt = 1

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        labels = class_labels(self, examples)
        rare, others = np.flatnonzero(labels == self.label), np.flatnonzero(labels != self.label)
        require(
            self.holders <= clients,
            f"rare_class: holders: expected at most clients.total = {clients}; got {self.holders}.",
        )
        require(
            len(rare) >= self.holders,
            f"rare_class: expected an example of class {self.label} for each of {self.holders} holders; got {len(rare)}.",
        )
        require(
            len(others) >= clients,
            f"rare_class: expected at least one example of another class per client; got {len(others)} for {clients} "
            "clients.",
        )
        parts = np.array_split(rng.child("others").numpy().permutation(others), clients)
        holders = rng.child("holders").numpy().permutation(clients)[: self.holders]
        pieces = np.array_split(rng.child("rare").numpy().permutation(rare), self.holders)
        for holder, piece in zip(holders.tolist(), pieces, strict=True):
            parts[holder] = np.concatenate([parts[holder], piece])
        return parts
