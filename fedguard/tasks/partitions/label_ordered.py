"""Labels that go along with the clients' numbers (Eichner et al., ICML 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Fraction, Partition
from fedguard.errors import require
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels


@dataclass(frozen=True, kw_only=True)
class LabelOrder(Partition):
    """Sorted by label and dealt out in the order of the clients' numbers: the first clients hold the first classes.

    A share gamma of the examples is dealt out IID, the rest as said, in equal runs. So whatever else goes by the number of a
    device goes along with its classes: the hours at which it is there, in ``day_and_night(owls=...)`` or in a trace.

    Args:
        gamma: 1 is IID, 0 is one run of sorted labels for each client.
    """

    name = "label_ordered"
    source = "Eichner et al., Semi-Cyclic Stochastic Gradient Descent, ICML 2019 (data that vary with the hour)"

    gamma: Fraction = 0.0

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        require(
            len(examples) >= clients,
            f"label_ordered: expected at least one example per client; got {len(examples)} for {clients} clients.",
        )
        shuffled, labels = rng.numpy().permutation(len(examples)), class_labels(self, examples)
        alike, rest = np.split(shuffled, [round(self.gamma * len(shuffled))])
        runs = np.array_split(rest[np.argsort(labels[rest], kind="stable")], clients)
        # The first runs may hold one example more, and so the last of the other parts do.
        others = np.array_split(alike, clients)[::-1]
        return [np.concatenate(pair) for pair in zip(others, runs, strict=True)]
