"""Parcels: parts of vectors that are sent if whole vectors would take too long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

#: Bytes of a coordinate, and of its index if the receiver cannot know it.
VALUE, NUMBER = 4, 4
#: Rounding error allowed in a number of coordinates.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Parcel:
    """The part of an update in one message.

    Attributes:
        kind: rules and lies keep a separate state for each kind.
        size: bytes.
        packed: float32 ``[m, d]`` -> ``[m, d]``: the part of each row that fits into a message; 0 elsewhere.
    """

    kind: int
    size: int
    packed: Callable[[Tensor], Tensor]


#: (source, node) -> the part of a vector in a message between them; None for the whole vector.
Links = Callable[[int, int], Parcel | None]


def block(dim: int, parts: int, number: int, order: Tensor | None = None) -> Parcel:
    """Block ``number`` of ``parts`` blocks of coordinates; sizes differ by one at most, the larger ones first.

    Args:
        order: int64 ``[d]``: order in which coordinates are cut; the order of the parameters if None.
    """
    least, longer = divmod(dim, parts)
    start = number * least + min(number, longer)
    stop = start + least + (number < longer)

    def keep_block(rows: Tensor) -> Tensor:
        kept = torch.zeros_like(rows)
        part = slice(start, stop) if order is None else order[start:stop]
        kept[:, part] = rows[:, part]
        return kept

    return Parcel(number, VALUE * (stop - start), keep_block)


def largest(dim: int, share: float, kind: int = 0) -> Parcel:
    """The coordinates of a row with the largest absolute values: this share of them, rounded up, each with its index."""
    count = min(dim, max(1, ceil(share * dim - _ROUNDING)))
    if count == dim:
        return Parcel(kind, VALUE * dim, torch.clone)

    def keep_largest(rows: Tensor) -> Tensor:
        chosen = rows.abs().topk(count, dim=1).indices
        return torch.zeros_like(rows).scatter(1, chosen, rows.gather(1, chosen))

    return Parcel(kind, (VALUE + NUMBER) * count, keep_largest)
