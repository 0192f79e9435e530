"""The updates of a round in a plane, from their inner products alone.

- x: along the mean of the honest updates, in lengths of this mean. 0 is the model before the round, 1 the honest mean; an
  aggregate at 0.5 makes half of the honest progress, one below 0 moves the model backward.
- y: across it, along the direction in which all updates of the round vary most, in the same unit. It is not the direction in
  which malicious updates differ most: in many dimensions any few updates look apart along a direction that is chosen to
  separate them. So they stand apart only where they cause the variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Squares below this share of the largest one are rounding
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane through the origin.

    Attributes:
        points: float64 ``[k, 2]``: x and y of each row.
        axes: float64 ``[2, n]``: weights of the updates in two vectors along the axes, each one unit long; 0 without an axis.
        unit: squared length of the unit.
    """

    points: Floats
    axes: Floats
    unit: float


def find_plane(products: Floats, honest: NDArray[np.bool_]) -> Plane:
    """The plane of a round.

    Where the honest updates cancel, nothing is along their mean: x is 0, and the unit is the length of the longest row.

    Args:
        products: float64 ``[k, k]``: inner products about the origin; the first n rows are the updates.
        honest: bool ``[n]``: of which the mean is taken; if there are none, of all.
    """
    n, largest = len(honest), float(products.diagonal().max())
    mean = (honest if honest.any() else np.ones(n)) / max(int(honest.sum()), 1 if honest.any() else n)
    along = products[:, :n] @ mean
    length = float(along[:n] @ mean)
    flat = length <= ROUNDING * largest
    unit = (largest if flat else length) or 1.0
    x = np.zeros(len(products)) if flat else along / length
    rest = products - np.outer(x, x) * unit
    variances, directions = np.linalg.eigh(center(rest[:n, :n]))
    top, most = float(variances[-1]), directions[:, -1] - directions[:, -1].mean()
    across = np.zeros(n)
    if top > ROUNDING * largest:
        across = (unit / top) ** 0.5 * (most - (most @ x[:n]) * mean * (not flat))
    y = rest[:, :n] @ across / unit
    return Plane(np.column_stack([x, y]), np.stack([mean * (not flat), across]), unit)


def center(products: Floats) -> Floats:
    """Inner products about the mean of the rows."""
    means = products.mean(0)
    centered: Floats = products - means[:, None] - means[None, :] + means.mean()
    return centered


def variance_share(products: Floats, points: Floats, unit: float) -> float:
    """Share of the variance of n updates (products float64 ``[n, n]``) that their points ``[n, 2]`` keep; 1 without any."""
    whole = float(np.trace(center(products)))
    if whole <= ROUNDING * float(products.diagonal().max()):
        return 1.0
    return min(float(points.var(0).sum()) * len(points) * unit / whole, 1.0)
