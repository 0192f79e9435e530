"""What an actor may do: one of a few actions, or a vector within bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choices:
    """Actions are the numbers ``0 ... n-1``."""

    n: int


@dataclass(frozen=True)
class Box:
    """Actions are vectors of length ``n`` with values from ``low`` to ``high``."""

    n: int
    low: float
    high: float
