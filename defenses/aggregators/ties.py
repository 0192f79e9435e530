"""Ties, resolved independently of the order of the rows: tied rows share the weight, as far as a rule allows it."""

from __future__ import annotations

import torch
from torch import Tensor

#: Values that differ by less than this, relatively, tie: inner products of float32 rows are no more exact.
TIE = 1e-6


def smallest(values: Tensor) -> Tensor:
    """bool ``[n]``: which values (0 or more) equal the smallest, up to rounding."""
    return values <= values.min() * (1 + TIE)


def smallest_alike(values: Tensor, count: int) -> Tensor:
    """float64 ``[..., n]``: equal weights, adding up to one, on the ``count`` smallest ``values`` (float64 ``[..., n]``).

    Values that tie for the last places share them, so that the order of the rows does not matter.
    """
    last = values.sort(dim=-1).values[..., count - 1, None]
    # Relative only: a rule must not depend on the units of the updates. Infinite values tie with each other
    tied = torch.isclose(values, last, rtol=TIE, atol=0.0)
    weights = ((values < last) & ~tied).double()
    shared = (count - weights.sum(-1, keepdim=True)) / tied.sum(-1, keepdim=True)
    return torch.where(tied, shared, weights) / count


def top_directions(inner: Tensor) -> tuple[float, Tensor]:
    """The largest eigenvalue of ``inner`` (float64 ``[n, n]``, symmetric), and a basis ``[n, k]`` of its eigenspace.

    The basis vectors depend on the order of the rows; the sum of squares along all of them does not.
    """
    values, vectors = torch.linalg.eigh(inner)
    return float(values[-1]), vectors[:, values >= values[-1] - TIE * values[-1].abs()]


def merge_ties(values: Tensor) -> Tensor:
    """float64 ``[n]``: the ``values``, where values that differ only by rounding are replaced by their mean."""
    ordered, order = values.sort()
    # Gaps rather than distances from a center: a tie must not depend on which value is looked at first
    group = (ordered.diff() > 10 * TIE * values.abs().max()).cumsum(0)
    group = torch.nn.functional.pad(group, (1, 0))
    sums = torch.zeros_like(values).index_add_(0, group, ordered)
    return torch.empty_like(values).index_copy_(
        0, order, (sums / group.bincount(minlength=len(values)).clamp(min=1))[group]
    )
