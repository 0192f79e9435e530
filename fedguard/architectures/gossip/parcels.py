"""Parts of vectors, as they travel where whole ones would take too long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

#: Bytes of a coordinate, and of its number where a receiver could not tell which one it is.
VALUE, NUMBER = 4, 4
#: What rounding may add to a number of coordinates.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Parcel:
    """What one message holds of an update.

    Attributes:
        kind: rules and lies remember each kind by itself.
        size: bytes.
        packed: float32 ``[m, d]`` -> ``[m, d]``: what of each row fits into a message; 0 elsewhere.
    """

    kind: int
    size: int
    packed: Callable[[Tensor], Tensor]


#: (source, node) -> what a message from one to the other holds of a vector; None for all of it.
Links = Callable[[int, int], Parcel | None]


def block(dim: int, parts: int, number: int, order: Tensor | None = None) -> Parcel:
    """One of so many blocks of coordinates, as equal as can be; the first ones are longer by one.

    Args:
        order: int64 ``[d]``: in which they are cut; that of the parameters if None.
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
    """This share of a row's coordinates, rounded up: those with the largest absolute values, each with its number."""
    count = min(dim, max(1, ceil(share * dim - _ROUNDING)))
    if count == dim:
        return Parcel(kind, VALUE * dim, torch.clone)

    def keep_largest(rows: Tensor) -> Tensor:
        chosen = rows.abs().topk(count, dim=1).indices
        return torch.zeros_like(rows).scatter(1, chosen, rows.gather(1, chosen))

    return Parcel(kind, (VALUE + NUMBER) * count, keep_largest)
