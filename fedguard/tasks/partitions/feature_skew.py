"""Feature skew: each client sees inputs of its own kind, with all labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition
from fedguard.errors import require
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class FeatureSkew(Partition):
    """Within each class, examples are sorted along the direction in which inputs differ most, and dealt out in equal runs.

    The direction is the first principal component of the inputs less their class means. So labels are spread evenly, and the clients'
    inputs are as different as the data allow.

    Args:
        share: of the examples that are sorted; the rest is dealt out IID.
    """

    name = "feature_skew"
    source = "the feature skew of Kairouz et al., Advances and Open Problems in Federated Learning, 2021, by principal component"

    share: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.share <= 1, f"feature_skew: share: expected from 0 to 1; got {self.share}.")

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        require(
            len(examples) >= clients,
            f"feature_skew: expected at least one example per client; got {len(examples)} for {clients} clients.",
        )
        draw, labels = rng.numpy(), examples.y.numpy()
        along = _first_component(examples.x.flatten(1).numpy().astype(np.float64), labels)
        order = np.lexsort((along, labels))  # by class, and within each along the direction
        place = np.empty(len(order))
        for label in np.unique(labels):
            members = order[labels[order] == label]
            place[members] = (np.arange(len(members)) + draw.random()) / len(
                members
            )  # in [0, 1), a class's start by chance
        loose = draw.random(len(place)) >= self.share
        place[loose] = draw.random(int(loose.sum()))
        parts = np.array_split(np.argsort(place % 1, kind="stable"), clients)
        return [parts[i] for i in draw.permutation(clients)]


def _first_component(x: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The coordinate ``[N]`` of each input along the first principal component within classes."""
    rest = x.copy()
    for label in np.unique(labels):
        rest[labels == label] -= rest[labels == label].mean(0)
    _, vectors = np.linalg.eigh(rest.T @ rest)
    along: NDArray[np.float64] = rest @ vectors[:, -1]
    return along
