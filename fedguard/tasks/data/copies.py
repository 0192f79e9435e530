"""Duplicate examples: noise hides one example at a time, so a person with several copies is protected less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from torch import Tensor

from fedguard.contracts import Examples


@dataclass(frozen=True)
class Duplicates:
    """Equal examples, labels included.

    Attributes:
        examples: number of examples.
        copied: number of examples that occur more than once.
        most: occurrences of the most frequent example.
        holders: number of clients of the example that most clients hold.
    """

    examples: int
    copied: int
    most: int
    holders: int


def copies(parts: Sequence[Examples]) -> Duplicates:
    """The duplicates among these clients' examples, within one client and between clients."""
    often, holders = Counter[bytes](), Counter[bytes]()
    for part in parts:
        own = Counter(_digests(part.x, part.y))
        often.update(own)
        holders.update(own.keys())
    return Duplicates(
        examples=often.total(),
        copied=sum(count for count in often.values() if count > 1),
        most=max(often.values(), default=0),
        holders=max(holders.values(), default=0),
    )


def _digests(x: Tensor, y: Tensor) -> list[bytes]:
    values, labels = x.flatten(1).numpy() + 0.0, y.numpy()  # -0 is 0
    return [
        blake2b(one.tobytes() + label.tobytes(), digest_size=16).digest()
        for one, label in zip(values, labels, strict=True)
    ]
