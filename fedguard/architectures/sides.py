"""Honest and malicious clients of a round, each side with its rows of one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from fedguard.rng import Rng

T = TypeVar("T")


@dataclass(frozen=True)
class Sides:
    """The clients of a round on their two sides, each with its rows of one matrix."""

    honest: tuple[int, ...]
    honest_rows: Tensor
    malicious: tuple[int, ...]
    malicious_rows: Tensor
    order: tuple[int, ...]

    @classmethod
    def split_rows(cls, rng: Rng, rows: Tensor, honest: tuple[int, ...], malicious: tuple[int, ...]) -> Sides:
        """Assign rows to the two sides. The malicious rows come first or last, each with probability 1/2."""
        if honest and malicious and rng.numpy().integers(2):
            cut = len(malicious)
            return cls(honest, rows[cut:], malicious, rows[:cut], malicious + honest)
        cut = len(honest)
        return cls(honest, rows[:cut], malicious, rows[cut:], honest + malicious)

    def in_order(self, honest: Sequence[T], malicious: Sequence[T]) -> tuple[T, ...]:
        """Values of the honest and of the malicious clients, in the order of the rows."""
        honest_first = self.order == self.honest + self.malicious
        return (*honest, *malicious) if honest_first else (*malicious, *honest)
