"""Neighboring inputs: the clip of a mechanism is unknown or depends on data, so many directions and lengths are tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedguard.contracts.audit import Reals
from fedguard.privacy.blackbox.claim import Relation
from fedguard.privacy.blackbox.mechanism import BlackBoxMechanism
from fedguard.rng import Rng

#: Lengths of inputs, as multiples of the presumed clip.
SCALES = (0.01, 1.0, 1000.0)
#: Ratio of the lengths of two inputs of the same direction: what follows the norm shows there.
STRETCH = 100.0


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighboring inputs, float64 ``[d]``.

    Attributes:
        direction: name of the direction in which they differ.
        words: both inputs, in words.
    """

    direction: str
    words: str
    x: Reals
    y: Reals

    @property
    def spread(self) -> float:
        """L1 length of x - y over its Euclidean length: from 1 for one coordinate to sqrt(d)."""
        difference = self.x - self.y
        return float(np.abs(difference).sum() / np.linalg.norm(difference))


def directions(mechanism: BlackBoxMechanism, rng: Rng) -> dict[str, Reals]:
    """Unit vectors float64 ``[d]``, from one coordinate, the shortest in L1, to all coordinates alike, the longest."""
    d = mechanism.size
    sizes = [int(np.prod(shape)) for shape in mechanism.shapes]
    first, last, each_layer = np.zeros(d), np.zeros(d), np.zeros(d)
    first[0], last[-1] = 1.0, 1.0
    each_layer[[end - 1 for end, size in zip(np.cumsum(sizes), sizes, strict=True) if size]] = 1.0
    found = {
        "the first coordinate": first,
        "the last coordinate": last,
        "all coordinates alike": np.ones(d),
        "one coordinate of each layer": each_layer,
        "a random direction": rng.child("direction").numpy().standard_normal(d),
    }
    unique: dict[str, Reals] = {}
    for name, vector in found.items():
        one = vector / np.linalg.norm(vector)
        if not any(np.allclose(one, other) for other in unique.values()):
            unique[name] = one
    return unique


def neighbors(
    mechanism: BlackBoxMechanism, relation: Relation, clip: float, rng: Rng, nothing: float = 0.0
) -> Iterator[Pair]:
    """All pairs that the search tries under a relation.

    Args:
        clip: presumed length to which the mechanism clips; only the scale of the search.
        nothing: share of an update that stands for no update; above 0 for a mechanism that raises on exactly 0.
    """
    absent = "nothing" if nothing == 0 else "next to nothing"
    for name, direction in directions(mechanism, rng).items():
        for scale in SCALES:
            x = scale * clip * direction
            if relation == "replace":
                yield Pair(name, f"{name}, length {scale * clip:g}, and its negative", x, -x)
            else:
                yield Pair(name, f"{name}, length {scale * clip:g}, and {absent}", x, nothing * x)
        if relation == "replace":
            x = clip * direction
            yield Pair(name, f"{name}, lengths {clip:g} and {STRETCH * clip:g}", x, STRETCH * x)
