"""Gamma-similarity: part IID, part sorted by label (Karimireddy et al., ICML 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Fraction, Partition
from fedguard.errors import require
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels


@dataclass(frozen=True, kw_only=True)
class GammaSimilarity(Partition):
    """A share gamma of the examples is dealt out IID, the rest sorted by label in equal runs.

    Args:
        gamma: 1 is IID, 0 is one run of sorted labels for each client.
    """

    name = "gamma_similarity"
    source = "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020"

    gamma: Fraction = 0.1

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        require(
            len(examples) >= clients,
            f"gamma_similarity: expected at least one example per client; got {len(examples)} for {clients} clients.",
        )
        draw = rng.numpy()
        shuffled, labels = draw.permutation(len(examples)), class_labels(self, examples)
        # At every client both parts come to the same number of examples, give or take one.
        alike, rest = np.split(shuffled, [round(self.gamma * len(shuffled))])
        runs = np.array_split(rest[np.argsort(labels[rest], kind="stable")], clients)
        runs = [runs[i] for i in draw.permutation(clients)]
        runs.sort(key=len)  # those with fewer of the sorted part get more of the other
        parts = [np.concatenate(pair) for pair in zip(np.array_split(alike, clients), runs, strict=True)]
        return [parts[i] for i in draw.permutation(clients)]
