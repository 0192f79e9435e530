"""Feature skew: each client sees inputs of its own kind, with all labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Fraction, Partition
from fedguard.errors import require
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels


@dataclass(frozen=True, kw_only=True)
class FeatureSkew(Partition):
    """Within each class, examples are sorted along the direction in which inputs differ most, and dealt out in equal runs.

    The direction is the first principal component of the inputs less their class means. So each client has its share of each
    label, and the clients' inputs differ as much as sorting can make them.

    Args:
        share: of the examples that are sorted; the others of the class change places at random.
    """

    name = "feature_skew"
    source = "Kairouz et al., Advances and Open Problems in Federated Learning, 2021: feature skew; by principal component here"

    share: Fraction = 1.0

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        require(
            len(examples) >= clients,
            f"feature_skew: expected at least one example per client; got {len(examples)} for {clients} clients.",
        )
        draw, labels = rng.numpy(), class_labels(self, examples)
        along = _first_component(examples.x.flatten(1).numpy(), labels)
        place = np.empty(len(labels))  # of each example in its class, in [0, 1)
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            members = members[np.argsort(along[members], kind="stable")]
            loose = np.flatnonzero(draw.random(len(members)) >= self.share)
            members[loose] = members[draw.permutation(loose)]
            # A random offset, since with a common start the first examples of all small classes would meet at the first client
            place[members] = (np.arange(len(members)) + draw.random()) / len(members)
        parts = np.array_split(np.argsort(place, kind="stable"), clients)
        return [parts[i] for i in draw.permutation(clients)]


def _first_component(x: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The coordinate ``[N]`` of each input along the first principal component within classes."""
    from sklearn.utils.extmath import randomized_svd

    rest = x.astype(np.float64)
    for label in np.unique(labels):
        rest[labels == label] -= rest[labels == label].mean(0)
    left, sizes, _ = randomized_svd(rest, 1, n_iter=20, random_state=0)
    along: NDArray[np.float64] = left[:, 0] * sizes[0]
    return along
